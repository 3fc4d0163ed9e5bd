"""An answer outlives the process that stored it or was about to deliver it."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from services.common.channels import open_channel
from services.common.errors import Unavailable
from services.session.interactions import InteractionState
from tests.conditions import eventually
from tests.databases import execute, fetch_value
from tests.session.clients import Client
from tests.session.desks import Desk
from tests.session.fake_runners import FakeRunner, fake_runner
from tests.session.leasing import Taker
from tests.session.places import Places, running_session
from tests.session.processes import session_process
from tests.session.questions import answer, check_told, read, undelivered

STORED = "session.answer_interaction.after_commit=kill"
CLAIMED = "session.deliver_answer.before_send=kill"


@pytest.fixture
async def runner(places: Places, desk: Desk) -> AsyncIterator[FakeRunner]:
    """The live holder of the session s1, whose turn t1 waits for the answer to q1."""
    async with open_channel(places.owner_address) as owner, fake_runner("one") as runner:
        await Taker(owner).session("s1", runner.holder, endpoint=runner.endpoint)
        await (await desk.begun(name=runner.holder)).ask(1)
        yield runner


async def answer_and_lose_the_answer(endpoint: str) -> None:
    async with open_channel(endpoint) as channel:
        with pytest.raises(Unavailable):
            await Client(channel).answer("s1", "q1", "yes", request_id="r1")


async def check_delivered(desk: Desk, runner: FakeRunner, endpoint: str) -> None:
    """The runner is told what the lost call decided; made again, the call is answered."""
    await eventually(lambda: bool(runner.answers), within=5.0)
    assert {(told.interaction_id, told.option_id) for told in runner.answers} == {("q1", "yes")}
    async with open_channel(endpoint) as channel:
        again = await Client(channel).answer("s1", "q1", "yes", request_id="r1")
    assert (again.option_id, again.settled_by) == ("yes", "client")
    await check_told(desk)


async def test_a_replica_killed_after_the_commit_leaves_the_answer_to_the_next_start(
    places: Places, desk: Desk, runner: FakeRunner
) -> None:
    async with session_process(places, MOORAGE_FAILPOINTS=STORED) as endpoint:
        await answer_and_lose_the_answer(endpoint)
    assert (await read(desk)).state is InteractionState.ANSWERED
    assert (await undelivered(desk), runner.answers) == (["q1"], [])
    async with session_process(places) as endpoint:
        await check_delivered(desk, runner, endpoint)


async def test_a_replica_killed_after_the_commit_leaves_the_answer_to_the_others(
    places: Places, desk: Desk, runner: FakeRunner
) -> None:
    async with running_session(places) as other:
        async with session_process(places, MOORAGE_FAILPOINTS=STORED) as endpoint:
            await answer_and_lose_the_answer(endpoint)
        await check_delivered(desk, runner, other.endpoint)


async def test_a_replica_killed_with_a_claim_does_not_hold_the_answer_up(
    places: Places, desk: Desk, runner: FakeRunner, database_url: str
) -> None:
    """However long the claim would last: after a start everything is due."""
    async with session_process(places, MOORAGE_FAILPOINTS=CLAIMED):
        await answer(desk, "q1", "yes")
        await eventually(lambda: was_claimed(database_url))
    assert not runner.answers
    await execute(
        database_url, "UPDATE session.interactions SET delivery_time = clock_timestamp() + interval '1 h'"
    )
    async with session_process(places):
        await eventually(lambda: bool(runner.answers))
        await eventually(lambda: delivered(desk))


async def delivered(desk: Desk) -> bool:
    return not await undelivered(desk)


async def was_claimed(database_url: str) -> bool:
    return bool(await fetch_value(database_url, "SELECT delivery_attempts > 0 FROM session.interactions"))
