"""Agents with bad habits, as a whole runner takes them: each turn ends as it should, the next one runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from google.protobuf.duration_pb2 import Duration
from moorage.common.v1 import turn_pb2
from moorage.common.v1.record_pb2 import InteractionOutcome
from moorage.common.v1.turn_pb2 import ApprovalPolicy, Limits, StopMethod

from tests.conditions import eventually
from tests.processes import is_alive
from tests.runner.holding import pid_in
from tests.runner.parts import Stack
from tests.runner.profiles import write_rogue
from tests.runner.talks import Talks, kinds_of

COMPLETED, STOPPED, FAILED = (
    turn_pb2.TURN_STATE_COMPLETED,
    turn_pb2.TURN_STATE_STOPPED,
    turn_pb2.TURN_STATE_FAILED,
)
WARM, ENDED = turn_pb2.RUNTIME_AFTER_WARM, turn_pb2.RUNTIME_AFTER_ENDED
# Rungs that are reached soon.
QUICK: dict[str, Any] = {"cancel_timeout": 0.3, "close_timeout": 0.2, "terminate_timeout": 0.3}


@pytest.fixture
async def rogue(stack: Stack, talks: Talks, tmp_path: Path) -> Any:
    """Makes a session with an agent of this habit."""

    async def make(habit: str, *arguments: str, runner: dict[str, Any] = QUICK, **fields: Any) -> None:
        profile = write_rogue(tmp_path / "profiles", habit, *arguments)
        await stack.add_runner(profiles_directory=tmp_path / "profiles", **runner)
        await talks.create("s", profile=profile, **fields)

    return make


async def stopped(talks: Talks, turn_id: str) -> StopMethod.ValueType:
    """How a turn that is stopped ends; once."""
    await talks.stop("s", turn_id)
    turn = await talks.ended("s", turn_id)
    assert (turn.state, turn.end_reason) == (STOPPED, turn_pb2.END_REASON_USER_STOP)
    records = await talks.records("s", turn_id)
    assert kinds_of(records).count("turn_ended") == 1
    return records[-1].body.turn_ended.stop_method


async def test_a_cancel_that_is_ignored(rogue: Any, talks: Talks) -> None:
    await rogue("ignores_cancel")
    for turn_id in ("one", "two"):
        await talks.start("s", turn_id, "go")
        await talks.says("s", turn_id, "at work")
        assert await stopped(talks, turn_id) == StopMethod.STOP_METHOD_AGENT_EXITED
        assert (await talks.turn("s", turn_id)).runtime_after == ENDED


async def test_a_cancel_in_the_same_instant_as_the_prompt_that_is_lost(rogue: Any, talks: Talks) -> None:
    await rogue("loses_an_early_cancel")
    await talks.start("s", "t", "go")

    async def sent() -> bool:
        return (await talks.turn("s", "t")).prompt_sent

    await eventually(sent, what="the prompt was about to be sent")
    assert await stopped(talks, "t") in (
        StopMethod.STOP_METHOD_KILLED,
        StopMethod.STOP_METHOD_PROMPT_WITHDRAWN,
    )
    assert (await talks.turn("s", "t")).runtime_after == ENDED
    await talks.start("s", "next", "go")
    await talks.says("s", "next", "at work")
    assert await stopped(talks, "next") == StopMethod.STOP_METHOD_KILLED


async def test_a_cancel_that_is_ignored_after_a_load(rogue: Any, talks: Talks) -> None:
    await rogue("ignores_cancel_after_load", runner={**QUICK, "park_limit": 0})
    await talks.start("s", "one", "go")
    await talks.says("s", "one", "at work")
    assert await stopped(talks, "one") == StopMethod.STOP_METHOD_AGENT_CONFIRMED
    await talks.start("s", "two", "go")
    await talks.says("s", "two", "at work")
    assert await stopped(talks, "two") == StopMethod.STOP_METHOD_AGENT_EXITED
    assert (await talks.turn("s", "two")).metadata.resume_kind == turn_pb2.RESUME_KIND_LOADED
    assert await talks.said("s", "two") == "at work"


async def test_a_second_stop_reason_for_the_prompt_before_ends_no_other(rogue: Any, talks: Talks) -> None:
    await rogue("ends_a_cancelled_prompt_again")
    await talks.start("s", "one", "go")
    await talks.says("s", "one", "at work")
    assert await stopped(talks, "one") == StopMethod.STOP_METHOD_AGENT_CONFIRMED
    turn = await talks.run("s", "two", "go on")
    assert (turn.state, turn.metadata.resume_kind) == (COMPLETED, turn_pb2.RESUME_KIND_WARM)
    assert await talks.said("s", "two") == "one two three"


async def test_what_is_said_after_a_confirmed_cancel_belongs_to_no_turn(rogue: Any, talks: Talks) -> None:
    await rogue("confirms_a_cancel_and_talks_on")
    await talks.start("s", "one", "go")
    await talks.says("s", "one", "at work")
    assert await stopped(talks, "one") == StopMethod.STOP_METHOD_AGENT_CONFIRMED
    assert (await talks.run("s", "two", "go on")).state == COMPLETED
    assert (await talks.said("s", "two")).endswith("next")
    records = await talks.records("s")
    assert kinds_of(records)[-1] == "turn_ended"


async def test_a_prompt_that_is_never_ended(rogue: Any, talks: Talks) -> None:
    await rogue("stops_talking", limits=Limits(max_silence=Duration(nanos=500_000_000)))
    turn = await talks.run("s", "t", "go")
    assert (turn.state, turn.end_reason) == (FAILED, turn_pb2.END_REASON_MAX_SILENCE)
    assert turn.runtime_after == ENDED
    assert await talks.said("s", "t") == "I will now"


async def test_numbers_that_are_none(rogue: Any, talks: Talks) -> None:
    await rogue("ends_with_nonsense")
    turn = await talks.run("s", "t", "go")
    assert (turn.state, turn.stop_reason) == (COMPLETED, "end_turn")
    assert not turn.HasField("usage")


async def test_updates_before_the_session_is_known(rogue: Any, talks: Talks) -> None:
    await rogue("speaks_early")
    assert (await talks.run("s", "t", "go")).state == COMPLETED
    assert await talks.said("s", "t") == "too early just before hello"


async def test_megabytes_on_stderr(rogue: Any, talks: Talks) -> None:
    await rogue("shouts")
    assert (await talks.run("s", "t", "go")).state == COMPLETED
    assert await talks.said("s", "t") == "said " * 10


async def test_nul_characters_lose_nothing_beside_them(rogue: Any, talks: Talks) -> None:
    await rogue("nul")
    turn = await talks.run("s", "t", "go")
    assert (turn.state, turn.stop_reason) == (COMPLETED, "end_turn\N{REPLACEMENT CHARACTER}")
    said = await talks.said("s", "t")
    assert said.startswith("before ")
    assert said.endswith("after")
    kinds = kinds_of(await talks.records("s", "t"))
    assert kinds[-1] == "turn_ended"


async def test_a_death_by_a_signal(rogue: Any, talks: Talks) -> None:
    await rogue("dies_by_a_signal")
    turn = await talks.run("s", "t", "go")
    assert (turn.state, turn.end_reason) == (FAILED, turn_pb2.END_REASON_AGENT_EXITED)
    assert turn.error.metadata["signal"] == "SIGSEGV"
    assert await talks.said("s", "t") == "last words"


@pytest.mark.parametrize("habit", ["leaves_a_child", "leaves_a_stranger"])
async def test_a_process_that_is_left_behind_is_ended_and_the_agent_kept(
    rogue: Any, talks: Talks, root: Path, habit: str
) -> None:
    await rogue(habit)
    pids = set()
    for turn_id in ("one", "two"):
        turn = await talks.run("s", turn_id, "go")
        assert (turn.state, turn.runtime_after) == (COMPLETED, WARM)
        assert not is_alive(int((root / "left").read_text()))
        pids.add(pid_in(await talks.said("s", turn_id)))
    assert len(pids) == 1
    assert is_alive(pids.pop())


async def test_a_process_that_outlives_its_agent_is_ended(rogue: Any, talks: Talks, root: Path) -> None:
    await rogue("leaves_a_child_and_exits")
    turn = await talks.run("s", "t", "go")
    assert (turn.state, turn.end_reason) == (FAILED, turn_pb2.END_REASON_AGENT_EXITED)
    await eventually(lambda: not is_alive(int((root / "left").read_text())), what="what was left has ended")


async def test_a_question_that_the_agent_does_not_wait_for_is_cancelled_with_its_turn(
    rogue: Any, talks: Talks
) -> None:
    await rogue("ends_beside_its_question", approval_policy=ApprovalPolicy.APPROVAL_POLICY_ASK)
    for turn_id in ("one", "two"):
        turn = await talks.run("s", turn_id, "go")
        assert (turn.state, turn.runtime_after) == (COMPLETED, WARM)
        closed = [
            record.body.interaction_closed.outcome
            for record in await talks.records("s", turn_id)
            if record.body.HasField("interaction_closed")
        ]
        assert closed in ([], [InteractionOutcome.INTERACTION_OUTCOME_CANCELLED])


@pytest.mark.parametrize("changes", [{"session": {"interaction_timeout": 0.5}}])
async def test_a_question_that_nobody_answers_does_not_hold_the_turn_for_ever(
    rogue: Any, talks: Talks, changes: dict[str, dict[str, Any]]
) -> None:
    await rogue("waits_for_its_answer", approval_policy=ApprovalPolicy.APPROVAL_POLICY_ASK)
    turn = await talks.run("s", "t", "go")
    assert turn.state == COMPLETED
    # It offers nothing that rejects.
    assert await talks.said("s", "t") == 'may I? {"outcome": "cancelled"}'
