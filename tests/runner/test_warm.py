"""Agents that stay alive between turns, and what ends them (T4, T7, T8, F1, F7)."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from moorage.common.v1 import turn_pb2
from moorage.runner.v1 import runner_pb2
from moorage.session.v1.session_pb2 import AgentSpec, Turn

from services.common.errors import FailedPrecondition
from tests.conditions import eventually
from tests.databases import execute
from tests.processes import is_alive
from tests.runner.holding import ACCEPTED, NOT_HELD, delivering, live_leases, pid_in
from tests.runner.moments import Moments
from tests.runner.parts import Stack
from tests.runner.profiles import write_rogue
from tests.runner.talks import Talks, kinds_of

COMPLETED = turn_pb2.TURN_STATE_COMPLETED
FRESH, WARM = turn_pb2.RESUME_KIND_FRESH, turn_pb2.RESUME_KIND_WARM
LOADED, RECONSTRUCTED = turn_pb2.RESUME_KIND_LOADED, turn_pb2.RESUME_KIND_RECONSTRUCTED
LEASE = "projects/default/sessions/{}"


async def parked(stack: Stack, talks: Talks, session_id: str, turn_id: str = "one") -> int:
    """A session whose agent was told something and is kept; its process."""
    if turn_id == "one":
        await talks.create(session_id)
    turn = await talks.run(session_id, turn_id, "who are you\nremember the lighthouse")
    assert turn.runtime_after == turn_pb2.RUNTIME_AFTER_WARM
    pid = pid_in(await talks.said(session_id, turn_id))
    assert is_alive(pid)
    assert LEASE.format(session_id) in await live_leases(stack.owner.endpoint)
    return pid


async def remembers(talks: Talks, session_id: str, turn_id: str) -> Turn:
    """A turn in which the agent still knows."""
    turn = await talks.run(session_id, turn_id, "recall")
    assert (turn.state, await talks.said(session_id, turn_id)) == (COMPLETED, "the lighthouse\n")
    return turn


async def is_released(stack: Stack, session_id: str) -> None:
    """Nobody holds the session."""

    async def nobody() -> bool:
        return LEASE.format(session_id) not in await live_leases(stack.owner.endpoint)

    await eventually(nobody, what=f"the lease of {session_id} was released")


async def test_the_first_turn_is_fresh_and_the_next_ones_find_the_agent_warm(
    stack: Stack, talks: Talks
) -> None:
    await stack.add_runner()
    await parked(stack, talks, "s")
    turns = [
        await talks.turn("s", "one"),
        await remembers(talks, "s", "two"),
        await remembers(talks, "s", "three"),
    ]
    assert [turn.metadata.resume_kind for turn in turns] == [FRESH, WARM, WARM]
    assert [turn.metadata.resume_reason for turn in turns[:2]] == [
        "first turn",
        "the agent of the turn before was kept warm",
    ]
    assert kinds_of(await talks.records("s", "two"))[:2] == ["user_message", "turn_started"]


async def test_a_parked_agent_that_dies_is_noticed_and_the_next_turn_loads_its_session(
    stack: Stack, talks: Talks
) -> None:
    await stack.add_runner()
    pid = await parked(stack, talks, "s")
    os.kill(pid, signal.SIGKILL)
    await is_released(stack, "s")
    turn = await remembers(talks, "s", "two")
    assert turn.metadata.resume_kind == LOADED
    assert turn.metadata.resume_reason == "the agent loaded its session of before"
    # What it replayed belongs to the turn in which it was said.
    assert kinds_of(await talks.records("s", "two")) == [
        *("user_message", "turn_started", "agent_message", "turn_ended")
    ]


async def test_a_workspace_that_restarts_ends_what_is_parked_in_it(stack: Stack, talks: Talks) -> None:
    await stack.add_runner(lease_ttl=3.0)
    pid = await parked(stack, talks, "s")
    await stack.workspace.stop()
    assert not is_alive(pid)
    await stack.workspace.start()
    assert (await remembers(talks, "s", "two")).metadata.resume_kind == LOADED


async def test_an_agent_that_dies_in_the_moment_of_the_next_turn_is_replaced(
    stack: Stack, talks: Talks, moments: Moments
) -> None:
    await stack.add_runner()
    pid = await parked(stack, talks, "s")
    held = moments.hold("runner.begin_turn.after")
    await talks.start("s", "two", "recall")
    await held.reached()
    os.kill(pid, signal.SIGKILL)
    held.release()
    turn = await talks.ended("s", "two")
    assert (turn.state, turn.metadata.resume_kind) == (COMPLETED, LOADED)
    assert turn.metadata.token == (await talks.turn("s", "one")).metadata.token


async def test_a_lease_that_is_lost_ends_what_is_parked_under_it(stack: Stack, talks: Talks) -> None:
    await stack.add_runner(lease_ttl=3.0)
    pid, other = await parked(stack, talks, "s"), await parked(stack, talks, "other")
    await execute(
        stack.database_url,
        "UPDATE owner.leases SET expires_at = clock_timestamp() - interval '1 second' WHERE resource = $1",
        LEASE.format("s"),
    )
    await eventually(lambda: not is_alive(pid), what="the agent was ended")
    assert is_alive(other)
    turn = await remembers(talks, "s", "two")
    assert turn.metadata.resume_kind == LOADED
    assert turn.metadata.token > (await talks.turn("s", "one")).metadata.token
    assert (await remembers(talks, "other", "two")).metadata.resume_kind == WARM


async def test_time_and_number_are_bounded(stack: Stack, talks: Talks) -> None:
    await stack.add_runner(park_limit=2, park_timeout=8.0)
    pids = [await parked(stack, talks, name) for name in ("a", "b")]
    await remembers(talks, "a", "two")
    pids.append(await parked(stack, talks, "c"))
    await eventually(lambda: not is_alive(pids[1]), what="the one unused for longest was ended")
    await is_released(stack, "b")
    assert [is_alive(pid) for pid in pids] == [True, False, True]
    await eventually(lambda: not any(map(is_alive, pids)), within=20, what="their time passed")
    await is_released(stack, "a")
    await is_released(stack, "c")


async def test_a_turn_that_cannot_be_begun_leaves_the_agent_parked(stack: Stack, talks: Talks) -> None:
    runner = await stack.add_runner()
    pid = await parked(stack, talks, "s")
    async with delivering(runner.endpoint) as deliveries:
        for turn_id in ("never-admitted", "one"):
            assert await deliveries.dispatch("s", turn_id) == runner_pb2.DISPATCH_RESULT_ACCEPTED
            await eventually(lambda: not list(runner.executions))
    assert is_alive(pid)
    assert (await remembers(talks, "s", "two")).metadata.resume_kind == WARM


async def test_a_holder_that_is_outdated_ends_its_agent_and_releases(stack: Stack, talks: Talks) -> None:
    await stack.add_runner()
    pid = await parked(stack, talks, "s")
    await execute(stack.database_url, "UPDATE session.sessions SET token = token + 1")
    turn = await remembers(talks, "s", "two")
    assert not is_alive(pid)
    assert turn.metadata.resume_kind == LOADED
    assert turn.metadata.token == (await talks.turn("s", "one")).metadata.token + 1


async def test_an_agent_of_other_settings_is_not_the_one_that_was_kept(stack: Stack, talks: Talks) -> None:
    await stack.add_runner()
    pid = await parked(stack, talks, "s")
    agent = AgentSpec(environment={"SETTING": "new"}).SerializeToString()
    await execute(stack.database_url, "UPDATE session.sessions SET agent = $1", agent)
    turn = await talks.run("s", "two", "recall\nrun echo $SETTING")
    assert turn.metadata.resume_kind == LOADED
    assert not is_alive(pid)
    updates = [record.body.tool_update for record in await talks.records("s", "two")]
    assert "new\n" in [content.block.text.text for update in updates for content in update.content]


async def test_a_parked_runtime_is_ended_on_demand_and_a_working_one_is_not(
    stack: Stack, talks: Talks
) -> None:
    runner = await stack.add_runner()
    pid = await parked(stack, talks, "s")
    async with delivering(runner.endpoint) as deliveries:
        assert await deliveries.end_runtime("s")
        assert not is_alive(pid)
        assert await live_leases(stack.owner.endpoint) == []
        assert not await deliveries.end_runtime("s")
        assert not await deliveries.end_runtime("unknown")
        await talks.start("s", "two", "sleep 600")
        await talks.says("s", "two", "Sleeping")
        with pytest.raises(FailedPrecondition) as refused:
            await deliveries.end_runtime("s")
        assert (refused.value.reason_name, refused.value.metadata["turn_id"]) == ("TURN_IN_PROGRESS", "two")


async def test_a_full_runner_keeps_no_session_from_others(stack: Stack, talks: Talks) -> None:
    await stack.add_runner("one", capacity=1)
    pid = await parked(stack, talks, "s")
    await talks.create("busy")
    await talks.start("busy", "t", "sleep 600")
    await talks.says("busy", "t", "Sleeping")
    await talks.start("s", "two", "recall")
    await eventually(lambda: not is_alive(pid), what="the agent was ended to let the session go")
    other = await stack.add_runner("two")
    turn = await talks.ended("s", "two")
    assert (turn.metadata.resume_kind, turn.metadata.runner_id) == (LOADED, other.holder)


async def test_a_begun_turn_that_is_not_run_is_settled_by_its_holder(stack: Stack, talks: Talks) -> None:
    runner = await stack.add_runner()
    pid = await parked(stack, talks, "s")
    async with delivering(runner.endpoint) as deliveries:
        assert await deliveries.settle("nobody", "t", "attempt") == NOT_HELD
        await execute(
            stack.database_url,
            """
            INSERT INTO session.turns
            SELECT (jsonb_populate_record(one, jsonb_build_object(
                'turn_id', 'ghost', 'number', one.number + 1, 'state', 'RUNNING', 'attempt_id', 'gone',
                'end_reason', NULL, 'end_time', NULL, 'phase', 'PROMPTED', 'stop_method', NULL,
                'runtime_after', NULL, 'last_turn_seq', 0))).*
            FROM session.turns AS one
            """,
        )
        assert await deliveries.settle("s", "ghost", "gone") == ACCEPTED
        turn = await talks.ended("s", "ghost")
        assert (turn.state, turn.end_reason) == (
            turn_pb2.TURN_STATE_LOST,
            turn_pb2.END_REASON_EXECUTION_MISSING,
        )
        assert not is_alive(pid)
        await is_released(stack, "s")
        assert await deliveries.settle("s", "ghost", "gone") == NOT_HELD
    assert [kind for kind in kinds_of(await talks.records("s", "ghost")) if kind != "agent_message"] == [
        *("error", "turn_ended")
    ]
    assert (await remembers(talks, "s", "two")).metadata.resume_kind == LOADED


async def test_what_is_said_between_turns_belongs_to_none(stack: Stack, talks: Talks, tmp_path: Path) -> None:
    profile = write_rogue(tmp_path / "profiles", "chatters")
    await stack.add_runner(profiles_directory=tmp_path / "profiles")
    await talks.create("s", profile=profile)
    assert (await talks.run("s", "one", "go")).runtime_after == turn_pb2.RUNTIME_AFTER_WARM
    second = await talks.run("s", "two", "go")
    assert second.metadata.resume_kind == WARM
    assert (await talks.said("s", "two")).partition("late")[0] == "in time"
    assert (await talks.said("s", "two")).count("in time") == 1


async def test_an_agent_that_cannot_load_is_told_what_was_said(
    stack: Stack, talks: Talks, tmp_path: Path
) -> None:
    profile = write_rogue(tmp_path / "profiles", "repeats")
    runner = await stack.add_runner(profiles_directory=tmp_path / "profiles")
    await talks.create("s", profile=profile)
    first = await talks.run("s", "one", "the lighthouse is white")
    async with delivering(runner.endpoint) as deliveries:
        assert await deliveries.end_runtime("s")
    second = await talks.run("s", "two", "what colour?")
    assert (first.metadata.resume_kind, second.metadata.resume_kind) == (FRESH, RECONSTRUCTED)
    assert second.metadata.resume_reason == "the agent cannot load a session, so it was told the transcript"
    said = await talks.said("s", "two")
    assert "> User: the lighthouse is white\n" in said
    assert "> You: the lighthouse is white\n" in said
    assert said.endswith("The user now says:\nwhat colour?\n")
    # Told once, it knows, as long as it lives.
    third = await talks.run("s", "three", "and now?")
    assert third.metadata.resume_kind == WARM
    assert await talks.said("s", "three") == "and now?\n"


async def test_an_agent_whose_session_is_gone_is_told_instead(stack: Stack, talks: Talks, root: Path) -> None:
    runner = await stack.add_runner()
    await parked(stack, talks, "s")
    async with delivering(runner.endpoint) as deliveries:
        assert await deliveries.end_runtime("s")
    for journal in root.glob(".moorage-demo/*/journal.jsonl"):
        journal.unlink()
    turn = await talks.run("s", "two", "say here")
    assert turn.metadata.resume_kind == RECONSTRUCTED
    assert turn.metadata.resume_reason.startswith("the agent could not load its session: ")
    assert (await talks.said("s", "two")).endswith("here")
