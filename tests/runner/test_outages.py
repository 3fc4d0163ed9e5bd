"""Neighbours that go away and come back: nothing lost, nothing doubled, nothing written too late."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.duration_pb2 import Duration
from grpc_health.v1.health_pb2 import HealthCheckRequest, HealthCheckResponse
from grpc_health.v1.health_pb2_grpc import HealthStub
from moorage.common.v1 import turn_pb2
from moorage.common.v1.turn_pb2 import Limits
from moorage.session.v1 import journal_pb2

from services.common.channels import open_channel
from services.runner.clients import journal
from tests.conditions import eventually
from tests.databases import execute
from tests.fakes import Gate, JournalBetween, journal_between
from tests.processes import is_alive
from tests.runner.parts import Stack
from tests.runner.profiles import write_rogue, write_shell
from tests.runner.talks import Talks, kinds_of

COMPLETED = turn_pb2.TURN_STATE_COMPLETED
LOST = turn_pb2.TURN_STATE_LOST


@pytest.fixture
async def between(stack: Stack) -> AsyncIterator[JournalBetween]:
    """A journal before the real one, for runners to write to."""
    async with journal_between(stack.session.service.journal_endpoint) as between:
        yield between


def counted(text: str) -> list[int]:
    """The numbers that were streamed or logged, each on a line of its own."""
    return [int(line) for line in text.splitlines() if line.isdigit()]


async def pid_of(talks: Talks, session_id: str, turn_id: str) -> int:
    """The agent's process, once it has told."""

    async def tells() -> bool:
        return "pid " in await talks.said(session_id, turn_id)

    await eventually(tells, what="the agent told its pid")
    return int((await talks.said(session_id, turn_id)).split()[1])


async def is_not_serving(endpoint: str) -> bool:
    """Whether the service says that it is not ready."""
    async with open_channel(endpoint) as channel:
        health: Any = HealthStub(channel)
        answer = await health.Check(HealthCheckRequest(service="ready"))
        return bool(answer.status == HealthCheckResponse.NOT_SERVING)


async def has_logged(log: Path, number: int) -> None:
    """Wait until the agent has counted so far."""
    await eventually(
        lambda: log.exists() and log.read_text().count("\n") >= number, within=20, what=f"{number} counted"
    )


async def test_a_session_service_that_restarts_in_the_middle_costs_no_record(
    stack: Stack, talks: Talks, root: Path
) -> None:
    await stack.add_runner()
    await talks.create("s")
    await talks.start("s", "t", "count to 300 into log every 0.01")
    for number in (50, 150):
        await has_logged(root / "log", number)
        await stack.session.stop()
        await has_logged(root / "log", number + 20)
        await stack.session.start()
    turn = await talks.ended("s", "t")
    assert turn.state == COMPLETED, turn
    assert counted(await talks.said("s", "t")) == list(range(1, 301))
    assert counted((root / "log").read_text()) == list(range(1, 301))
    assert kinds_of(await talks.records("s", "t")).count("turn_ended") == 1


async def test_a_turn_outlives_a_session_service_that_is_away_when_it_ends(
    stack: Stack, talks: Talks, root: Path
) -> None:
    await stack.add_runner()
    await talks.create("s")
    await talks.start("s", "t", "count to 60 into log every 0.02")
    await has_logged(root / "log", 10)
    await stack.session.stop()
    await has_logged(root / "log", 60)
    await stack.session.start()
    assert (await talks.ended("s", "t")).state == COMPLETED
    assert counted(await talks.said("s", "t")) == list(range(1, 61))


@pytest.mark.parametrize("name", ["BeginTurn", "ReportProgress", "AppendRecords", "FinishTurn"])
async def test_a_write_whose_answer_is_lost_is_repeated_and_has_one_effect(
    stack: Stack, talks: Talks, between: JournalBetween, root: Path, name: str
) -> None:
    between.losing[name] = 2
    runner = await stack.add_runner(journal_address=between.endpoint)
    await talks.create("s")
    turn = await talks.run("s", "t", "count to 20 into log")
    assert turn.state == COMPLETED
    await eventually(lambda: between.losing[name] == 0, what="the answers were lost")
    await eventually(lambda: not list(runner.executions), what="the end was acknowledged")
    assert counted(await talks.said("s", "t")) == list(range(1, 21))
    assert counted((root / "log").read_text()) == list(range(1, 21))
    kinds = kinds_of(await talks.records("s", "t"))
    assert (kinds.count("turn_started"), kinds.count("turn_ended")) == (1, 1)
    begins = between.requests(journal_pb2.BeginTurnRequest)
    assert len({begin.attempt_id for begin in begins}) == 1


async def test_an_answer_that_can_never_be_received_does_not_keep_the_session_for_ever(
    stack: Stack, talks: Talks, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal, "_MOST_FAULTS", 2)
    await talks.create("s")
    async with journal_between(stack.session.service.journal_endpoint, largest_answer=10) as between:
        await stack.add_runner(journal_address=between.endpoint)
        await talks.start("s", "t", "say never")
        turn = await talks.ended("s", "t")
    assert (turn.state, turn.prompt_sent) == (LOST, False)
    assert len(between.requests(journal_pb2.BeginTurnRequest)) == 3


async def test_no_byte_of_the_prompt_leaves_before_it_is_marked_as_sent(
    stack: Stack, talks: Talks, between: JournalBetween, tmp_path: Path
) -> None:
    gate = Gate()

    async def hold_the_mark(request: journal_pb2.ReportProgressRequest) -> None:
        if request.prompt_sent:
            await gate()

    between.before["ReportProgress"] = hold_the_mark
    seen = tmp_path / "stdin"
    demo = Path(__file__).parents[2] / "services" / "runner" / "agents" / "demo"
    profile = write_shell(tmp_path / "profiles", "tapped", f"tee {seen} | {{python}} -I -S {demo}")
    await stack.add_runner(journal_address=between.endpoint, profiles_directory=tmp_path / "profiles")
    await talks.create("s", profile=profile)
    await talks.start("s", "t", "say secret")
    await gate.reached.wait()
    assert "session/new" in seen.read_text()
    assert "session/prompt" not in seen.read_text()
    assert not (await talks.turn("s", "t")).prompt_sent
    gate.open.set()
    assert (await talks.ended("s", "t")).state == COMPLETED
    assert "session/prompt" in seen.read_text()


async def test_the_agent_is_dead_before_the_turn_is_said_to_have_ended(
    stack: Stack, talks: Talks, between: JournalBetween
) -> None:
    alive: list[bool] = []

    async def look(request: journal_pb2.FinishTurnRequest) -> None:
        said = await talks.said("s", "t")
        alive.append(is_alive(int(said.split()[1])))
        assert request.runtime_after == turn_pb2.RUNTIME_AFTER_ENDED

    between.before["FinishTurn"] = look
    await stack.add_runner(journal_address=between.endpoint, park_limit=0)
    await talks.create("s")
    assert (await talks.run("s", "t", "pid")).state == COMPLETED
    assert alive == [False]


async def test_an_owner_that_is_away_longer_than_the_lease_ends_the_work_and_nothing_is_written(
    stack: Stack, talks: Talks, between: JournalBetween, root: Path
) -> None:
    runner = await stack.add_runner(journal_address=between.endpoint, lease_ttl=2.0)
    await talks.create("s")
    await talks.start("s", "t", "pid\ncount to 100000 into log every 0.01")
    pid = await pid_of(talks, "s", "t")
    await has_logged(root / "log", 20)
    await stack.owner.stop()
    stopped_at = time.monotonic()
    await eventually(lambda: not is_alive(pid), within=10, what="the agent was ended")
    assert time.monotonic() - stopped_at < 2.5
    await eventually(lambda: not list(runner.executions), what="the turn was forgotten")
    await eventually(lambda: is_not_serving(runner.endpoint), what="the runner is not ready")
    written = len(between.seen)
    assert (await talks.turn("s", "t")).state == turn_pb2.TURN_STATE_RUNNING
    await stack.owner.start()
    turn = await talks.ended("s", "t")
    assert (turn.state, turn.end_reason) == (LOST, turn_pb2.END_REASON_LEASE_LOST)
    assert len(between.seen) == written
    assert between.requests(journal_pb2.FinishTurnRequest) == []
    await talks.run("s", "next", "say the next turn runs")
    assert await talks.said("s", "next") == "the next turn runs"


async def test_a_turn_outlasts_many_leases(stack: Stack, talks: Talks) -> None:
    await stack.add_runner(lease_ttl=2.0)
    await talks.create("s")
    turn = await talks.run("s", "t", "count to 250 every 0.02")
    assert turn.state == COMPLETED, turn
    assert turn.end_time.ToSeconds() - turn.begin_time.ToSeconds() >= 4


async def test_an_owner_that_is_away_for_less_than_the_lease_costs_nothing(
    stack: Stack, talks: Talks, root: Path
) -> None:
    await stack.add_runner(lease_ttl=6.0)
    await talks.create("s")
    await talks.start("s", "t", "count to 250 into log every 0.01")
    await has_logged(root / "log", 20)
    await stack.owner.stop()
    await has_logged(root / "log", 150)
    await stack.owner.start()
    assert (await talks.ended("s", "t")).state == COMPLETED
    assert counted(await talks.said("s", "t")) == list(range(1, 251))


async def test_one_lost_lease_ends_its_session_only(
    stack: Stack, talks: Talks, between: JournalBetween, root: Path
) -> None:
    await stack.add_runner(journal_address=between.endpoint, lease_ttl=3.0)
    for session_id in ("a", "b"):
        await talks.create(session_id)
        await talks.start(session_id, "t", f"pid\ncount to 300 into {session_id}.log every 0.01")
    pid = await pid_of(talks, "a", "t")
    await has_logged(root / "b.log", 20)
    await execute(
        stack.database_url,
        "UPDATE owner.leases SET expires_at = clock_timestamp() - interval '1 second' WHERE resource = $1",
        "projects/default/sessions/a",
    )
    await eventually(lambda: not is_alive(pid), within=10, what="the agent of a was ended")
    assert (await talks.ended("a", "t")).state == LOST
    assert (await talks.ended("b", "t")).state == COMPLETED
    assert counted(await talks.said("b", "t")) == list(range(1, 301))
    assert [request.session_id for request in between.requests(journal_pb2.FinishTurnRequest)] == ["b"]


async def test_an_agent_that_says_more_than_can_be_stored_waits_and_loses_nothing(
    stack: Stack, talks: Talks, between: JournalBetween, tmp_path: Path
) -> None:
    gate = Gate()
    between.before["AppendRecords"] = gate
    log = tmp_path / "torrent.log"
    profile = write_rogue(tmp_path / "profiles", "torrent", "200", str(log))
    await stack.add_runner(
        journal_address=between.endpoint, profiles_directory=tmp_path / "profiles", call_timeout=60.0
    )
    limits = Limits(max_silence=Duration(seconds=1))
    await talks.create("s", profile=profile, limits=limits)
    await talks.start("s", "t", "go")
    await gate.reached.wait()
    sizes: list[int] = []

    async def stands_still() -> bool:
        sizes.append(log.stat().st_size)
        return len(sizes) > 150 and len(set(sizes[-150:])) == 1

    # Longer than it may be silent: who is kept from speaking is not silent.
    await eventually(stands_still, within=30, what="the agent waits")
    assert 5 < len(log.read_text().split()) < 100
    gate.open.set()
    assert (await talks.ended("s", "t")).state == COMPLETED
    said = await talks.said("s", "t")
    assert [int(piece) for piece in said.replace("x", "").split()] == list(range(200))
    assert len(said) == 200 * 100_000


async def test_a_turn_that_somebody_else_ended_is_given_up_without_a_word(
    stack: Stack, talks: Talks, between: JournalBetween, root: Path
) -> None:
    await stack.add_runner(journal_address=between.endpoint)
    await talks.create("s")
    await talks.start("s", "t", "pid\ncount to 100000 into log every 0.01")
    pid = await pid_of(talks, "s", "t")
    await has_logged(root / "log", 20)
    await execute(stack.database_url, "UPDATE session.sessions SET token = token + 1")
    await eventually(lambda: not is_alive(pid), within=10, what="the agent was ended")
    assert between.requests(journal_pb2.FinishTurnRequest) == []
