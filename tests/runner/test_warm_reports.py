"""What a turn with a warm agent tells, and when: nothing that is known, nothing in the agent's way (T4)."""

from __future__ import annotations

import os
import signal
from collections.abc import AsyncIterator

import pytest
from moorage.common.v1 import turn_pb2
from moorage.session.v1 import journal_pb2

from services.runner.questions import WAITS_FOR_AGENT
from tests.conditions import eventually
from tests.fakes import Gate, JournalBetween, journal_between
from tests.processes import is_alive
from tests.runner.holding import pid_in
from tests.runner.parts import Stack
from tests.runner.talks import Talks

PROMPTED = turn_pb2.TURN_PHASE_PROMPTED
WARM = turn_pb2.RESUME_KIND_WARM


@pytest.fixture
async def between(stack: Stack) -> AsyncIterator[JournalBetween]:
    """Before the journal of a runner with a warm agent for the session s."""
    async with journal_between(stack.session.service.journal_endpoint) as between:
        await stack.add_runner(journal_address=between.endpoint)
        yield between


def reports(between: JournalBetween, turn_id: str) -> list[journal_pb2.ReportProgressRequest]:
    """What was told of a turn's progress."""
    told = between.requests(journal_pb2.ReportProgressRequest)
    return [request for request in told if request.turn_id == turn_id]


async def test_a_short_turn_tells_at_its_begin_that_its_prompt_goes_out(
    talks: Talks, between: JournalBetween
) -> None:
    await talks.create("s")
    await talks.run("s", "one", "say first")
    phases = [request.phase for request in reports(between, "one")]
    assert phases == sorted(phases)
    assert phases[-1] == PROMPTED
    two = await talks.run("s", "two", "say second")
    first, second = between.requests(journal_pb2.BeginTurnRequest)
    assert (first.prompt_sent, first.HasField("observation")) == (False, False)
    assert (second.prompt_sent, second.observation.resume_kind) == (True, WARM)
    assert reports(between, "two") == []
    assert (two.prompt_sent, two.metadata.resume_kind) == (True, WARM)


async def test_a_longer_one_is_seen_to_have_its_prompt(talks: Talks, between: JournalBetween) -> None:
    await talks.create("s")
    await talks.run("s", "one", "say first")
    await talks.start("s", "two", "sleep 600")

    async def is_prompted() -> bool:
        return (await talks.turn("s", "two")).phase == PROMPTED

    await eventually(is_prompted)
    assert [request.phase for request in reports(between, "two")] == [PROMPTED]
    await talks.stop("s", "two")
    assert (await talks.ended("s", "two")).state == turn_pb2.TURN_STATE_STOPPED


async def test_a_question_that_comes_first_is_what_the_turn_waits_for(
    talks: Talks, between: JournalBetween
) -> None:
    await talks.create("s", approval_policy=turn_pb2.APPROVAL_POLICY_ASK)
    await talks.run("s", "one", "say first")
    await talks.start("s", "two", "ask to run true")

    async def is_prompted() -> bool:
        return [report.phase for report in reports(between, "two")] == [PROMPTED] * 2

    await eventually(is_prompted)
    turn = await talks.turn("s", "two")
    assert (turn.state, turn.phase) == (turn_pb2.TURN_STATE_AWAITING_INPUT, PROMPTED)
    first, second = reports(between, "two")
    assert first.waiting_reason == second.waiting_reason == turn.waiting_reason != WAITS_FOR_AGENT
    await talks.stop("s", "two")
    await talks.ended("s", "two")


async def test_no_prompt_goes_out_before_that_is_stored(talks: Talks, between: JournalBetween) -> None:
    await talks.create("s")
    await talks.run("s", "one", "say first")
    gate = between.before["BeginTurn"] = Gate()
    await talks.start("s", "two", "remember the harbour")
    await gate.reached.wait()
    await talks.stop("s", "two")
    assert (await talks.ended("s", "two")).stop_method == turn_pb2.STOP_METHOD_NOT_BEGUN
    gate.open.set()
    await talks.run("s", "three", "recall")
    assert "harbour" not in await talks.said("s", "three")


async def test_of_an_agent_that_died_meanwhile_nothing_is_told_in_the_end(
    talks: Talks, between: JournalBetween
) -> None:
    await talks.create("s")
    await talks.run("s", "one", "who are you\nremember the lighthouse")
    pid = pid_in(await talks.said("s", "one"))
    begin, load = Gate(), Gate()

    async def until_loading(told: journal_pb2.ReportProgressRequest) -> None:
        if told.phase == turn_pb2.TURN_PHASE_LOADING_SESSION:
            await load()

    between.before |= {"BeginTurn": begin, "ReportProgress": until_loading}
    await talks.start("s", "two", "recall")
    await begin.reached.wait()
    os.kill(pid, signal.SIGKILL)
    await eventually(lambda: not is_alive(pid))
    begin.open.set()
    await load.reached.wait()
    assert (await talks.turn("s", "two")).metadata.resume_kind == turn_pb2.RESUME_KIND_UNSPECIFIED
    load.open.set()
    assert (await talks.ended("s", "two")).metadata.resume_kind == turn_pb2.RESUME_KIND_LOADED
    assert await talks.said("s", "two") == "the lighthouse\n"
