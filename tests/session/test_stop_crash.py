"""A Stop outlives the process that stored it or was about to deliver it (S1, S6)."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from services.common.channels import open_channel
from services.common.errors import Unavailable
from services.session.commands import CommandState
from tests.conditions import eventually
from tests.databases import execute
from tests.session.clients import Client
from tests.session.desks import Desk
from tests.session.fake_runners import FakeRunner, fake_runner
from tests.session.leasing import Taker
from tests.session.places import Places, running_session
from tests.session.processes import session_process
from tests.session.stops import all_commands, stop

STORED = "session.stop_turn.after_commit=kill"
CLAIMED = "session.deliver_stop.before_send=kill"
TRACEPARENT = "00-5bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


@pytest.fixture
async def runner(places: Places, desk: Desk) -> AsyncIterator[FakeRunner]:
    """The live holder of the session s1, whose turn t1 it has begun."""
    async with open_channel(places.owner_address) as owner, fake_runner("one") as runner:
        await Taker(owner).session("s1", runner.holder, endpoint=runner.endpoint)
        await desk.begun(name=runner.holder)
        yield runner


async def stop_and_lose_the_answer(endpoint: str) -> None:
    async with open_channel(endpoint) as channel:
        with pytest.raises(Unavailable):
            await Client(channel).traced(TRACEPARENT).stop("s1", "t1", request_id="r1")


async def check_delivered(desk: Desk, runner: FakeRunner, endpoint: str) -> None:
    """Delivered in the trace of the lost call; the call made again tells of the same command."""
    await eventually(lambda: bool(runner.stops), within=5.0)
    assert {traceparent[3:35] for traceparent in runner.stop_traceparents} == {TRACEPARENT[3:35]}
    async with open_channel(endpoint) as channel:
        again = (await Client(channel).stop("s1", "t1", request_id="r1")).command
    (stored,) = await all_commands(desk)
    assert {request.command_id for request in runner.stops} == {again.command_id} == {stored.command_id}


async def test_a_replica_killed_after_the_commit_leaves_the_stop_to_the_next_start(
    places: Places, desk: Desk, runner: FakeRunner
) -> None:
    async with session_process(places, MOORAGE_FAILPOINTS=STORED) as endpoint:
        await stop_and_lose_the_answer(endpoint)
    assert [command.state for command in await all_commands(desk)] == [CommandState.PENDING]
    assert not runner.stops
    async with session_process(places) as endpoint:
        await check_delivered(desk, runner, endpoint)


async def test_a_replica_killed_after_the_commit_leaves_the_stop_to_the_others(
    places: Places, desk: Desk, runner: FakeRunner
) -> None:
    async with running_session(places) as other:
        async with session_process(places, MOORAGE_FAILPOINTS=STORED) as endpoint:
            await stop_and_lose_the_answer(endpoint)
        await check_delivered(desk, runner, other.endpoint)


async def test_a_replica_killed_with_a_claim_does_not_hold_the_stop_up(
    places: Places, desk: Desk, runner: FakeRunner, database_url: str
) -> None:
    """However long the claim would last: after a start everything is due."""
    async with session_process(places, MOORAGE_FAILPOINTS=CLAIMED):
        await stop(desk, "t1")
        await eventually(lambda: was_claimed(desk))
    assert not runner.stops
    await execute(
        database_url, "UPDATE session.commands SET delivery_time = clock_timestamp() + interval '1 h'"
    )
    async with session_process(places):
        await eventually(lambda: bool(runner.stops))


async def was_claimed(desk: Desk) -> bool:
    """A delivery was counted, after which the process was killed before it sent anything."""
    (command,) = await all_commands(desk)
    return command.deliveries == 1
