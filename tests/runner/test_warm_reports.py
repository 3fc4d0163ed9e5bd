"""What a turn with a warm agent tells, and when: nothing that is known, nothing in the agent's way (T4)."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from moorage.common.v1 import turn_pb2
from moorage.session.v1 import journal_pb2

from tests.conditions import eventually
from tests.fakes import Gate, JournalBetween, journal_between
from tests.runner.parts import Stack
from tests.runner.talks import Talks

UNTOLD, PROMPTED = turn_pb2.TURN_PHASE_UNSPECIFIED, turn_pb2.TURN_PHASE_PROMPTED
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


async def test_a_short_turn_tells_once_that_its_prompt_goes_out(
    talks: Talks, between: JournalBetween
) -> None:
    await talks.create("s")
    await talks.run("s", "one", "say first")
    phases = [request.phase for request in reports(between, "one")]
    assert phases == sorted(phases)
    assert phases[-1] == PROMPTED
    two = await talks.run("s", "two", "say second")
    (told,) = reports(between, "two")
    assert (told.phase, told.prompt_sent, told.observation.resume_kind) == (UNTOLD, True, WARM)
    assert (two.prompt_sent, two.metadata.resume_kind) == (True, WARM)


async def test_a_longer_one_is_seen_to_have_its_prompt(talks: Talks, between: JournalBetween) -> None:
    await talks.create("s")
    await talks.run("s", "one", "say first")
    await talks.start("s", "two", "sleep 600")

    async def is_prompted() -> bool:
        return (await talks.turn("s", "two")).phase == PROMPTED

    await eventually(is_prompted)
    assert [request.prompt_sent for request in reports(between, "two")] == [True, False]
    await talks.stop("s", "two")
    assert (await talks.ended("s", "two")).state == turn_pb2.TURN_STATE_STOPPED


async def test_no_prompt_goes_out_before_that_is_stored(talks: Talks, between: JournalBetween) -> None:
    await talks.create("s")
    await talks.run("s", "one", "say first")
    gate = between.before["ReportProgress"] = Gate()
    await talks.start("s", "two", "remember the harbour")
    await gate.reached.wait()
    # The workspace has been claimed long since; a Stop still finds a prompt to withdraw.
    await talks.stop("s", "two")
    two = await talks.ended("s", "two")
    assert two.stop_method == turn_pb2.STOP_METHOD_PROMPT_WITHDRAWN
    gate.open.set()
    await talks.run("s", "three", "recall")
    assert "harbour" not in await talks.said("s", "three")
