"""The Stop outbox (S6, F9), with a real owner and runners that record what they are told."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from datetime import timedelta

import grpc
import pytest
from moorage.common.v1 import turn_pb2
from moorage.runner.v1 import runner_pb2

from services.common.channels import Channels, open_channel
from services.common.clock import Clock, ManualClock, SystemClock
from services.common.database import Database
from services.common.errors import StartupRefused
from services.session.clients import Leases, Runners
from services.session.commands import CommandState, StopClaim
from services.session.outbox.delivery import StopDelivery
from services.session.outbox.direct import stop_adapter
from services.session.store.delivery import DeliveryStore
from tests.conditions import eventually
from tests.databases import execute, fetch_value
from tests.fakes import Gate
from tests.session import samples
from tests.session.desks import Desk, Holder
from tests.session.fake_runners import FakeRunner, fake_runner
from tests.session.leasing import Taker
from tests.session.places import NOWHERE
from tests.session.stops import read, stop

NOT_HELD = runner_pb2.DELIVERY_RESULT_NOT_HELD
DUE = "UPDATE session.commands SET delivery_time = clock_timestamp()"
LATER = "UPDATE session.commands SET delivery_time = clock_timestamp() + interval '1 hour'"


@pytest.fixture
async def owner(owner_address: str) -> AsyncIterator[grpc.aio.Channel]:
    async with open_channel(owner_address) as channel:
        yield channel


@pytest.fixture
def taker(owner: grpc.aio.Channel) -> Taker:
    return Taker(owner)


@pytest.fixture
async def runner(taker: Taker) -> AsyncIterator[FakeRunner]:
    """The holder of the session s1."""
    async with fake_runner("one") as runner:
        await taker.session("s1", runner.holder, endpoint=runner.endpoint)
        yield runner


@contextlib.asynccontextmanager
async def delivering(
    desk: Desk, owner: grpc.aio.Channel, clock: Clock | None = None
) -> AsyncIterator[StopDelivery]:
    """A replica's deliveries at work; by a manual clock it sleeps until it is woken."""
    clock = clock or SystemClock()
    async with Channels() as channels:
        adapter = stop_adapter("direct", Leases(owner), Runners(channels))
        delivery = StopDelivery(DeliveryStore(desk.database), adapter, clock)
        task = asyncio.create_task(delivery.run())
        try:
            yield delivery
        finally:
            task.cancel()
            await asyncio.wait({task})


async def claimed(desk: Desk) -> bool:
    """Whether a runner has taken the command."""
    rows = await fetch_state(desk)
    return rows == CommandState.CLAIMED


async def fetch_state(desk: Desk) -> str:
    async with desk.database.connection() as connection:
        state: str = await connection.fetchval("SELECT state FROM session.commands")
    return state


async def stopped(holder: Holder) -> None:
    await holder.finish(
        state=turn_pb2.TURN_STATE_STOPPED,
        end_reason=turn_pb2.END_REASON_USER_STOP,
        stop_method=turn_pb2.STOP_METHOD_AGENT_CONFIRMED,
        runtime_after=turn_pb2.RUNTIME_AFTER_WARM,
    )


async def test_a_stop_is_delivered_at_once_to_the_holder_and_in_its_trace(
    desk: Desk, owner: grpc.aio.Channel, runner: FakeRunner
) -> None:
    await desk.begun()
    async with delivering(desk, owner, ManualClock()) as delivery:
        command = await stop(desk, "t1")
        delivery.wake()
        await eventually(lambda: claimed(desk))
    (request,) = runner.stops
    assert (request.project, request.session_id, request.turn_id) == ("default", "s1", "t1")
    assert (request.command_id, request.traceparent) == (command.command_id, samples.TRACEPARENT)
    (traceparent,) = runner.stop_traceparents
    assert traceparent[3:35] == samples.TRACEPARENT[3:35]
    stored = await read(desk, command.command_id)
    assert (stored.state, stored.outcome, stored.deliveries) == (CommandState.CLAIMED, None, 1)
    assert not runner.settled


async def test_it_is_delivered_again_more_and_more_seldom_until_the_turn_has_ended(
    desk: Desk, owner: grpc.aio.Channel, runner: FakeRunner, database_url: str
) -> None:
    holder = await desk.begun()
    async with delivering(desk, owner, ManualClock()) as delivery:
        command = await stop(desk, "t1")
        delivery.wake()
        for number, expected in enumerate([0.2, 0.5, 1.0, 2.0, 5.0, 5.0], start=1):
            left = await until_postponed(database_url, number)
            assert expected - 1.0 < left <= expected
            assert len(runner.stops) == number
            await execute(database_url, DUE)
            delivery.wake()
        await until_postponed(database_url, 7)
        await stopped(holder)
        await execute(database_url, DUE)
        assert await DeliveryStore(desk.database).next_due() is None
        assert await DeliveryStore(desk.database).claim(10, hold=5.0) == []
    assert len(runner.stops) == 7
    assert {traceparent[3:35] for traceparent in runner.stop_traceparents} == {samples.TRACEPARENT[3:35]}
    stored = await read(desk, command.command_id)
    assert (stored.outcome, stored.deliveries) == ("STOPPED", 7)


async def until_postponed(database_url: str, attempts: int) -> float:
    """Seconds until the next delivery, once so many attempts are over."""

    async def over() -> bool:
        query = "SELECT attempts = $1 AND delivery_time < clock_timestamp() + interval '5 s' FROM session.commands"
        return bool(await fetch_value(database_url, query, attempts))

    await eventually(over)
    query = "SELECT extract(epoch FROM delivery_time - clock_timestamp())::float8 FROM session.commands"
    left: float = await fetch_value(database_url, query)
    return left


async def test_after_a_restart_it_is_delivered_at_once(
    desk: Desk, owner: grpc.aio.Channel, runner: FakeRunner, database_url: str
) -> None:
    await desk.begun()
    await stop(desk, "t1")
    await execute(database_url, LATER)
    async with delivering(desk, owner, ManualClock()):
        await eventually(lambda: bool(runner.stops))


async def test_a_holder_that_does_not_run_the_turn_has_to_end_it(
    desk: Desk, owner: grpc.aio.Channel, runner: FakeRunner
) -> None:
    holder = await desk.begun(attempt_id="a7")
    runner.stop_result = NOT_HELD
    async with delivering(desk, owner) as delivery:
        command = await stop(desk, "t1")
        delivery.wake()
        await eventually(lambda: len(runner.settled) >= 2)
        await holder.finish(state=turn_pb2.TURN_STATE_LOST, end_reason=turn_pb2.END_REASON_EXECUTION_MISSING)
    request = runner.settled[0]
    assert (request.project, request.session_id, request.turn_id) == ("default", "s1", "t1")
    assert request.attempt_id == "a7"
    stored = await read(desk, command.command_id)
    assert (stored.state, stored.outcome) == ("APPLIED", "LOST")


async def test_a_turn_that_just_ended_by_itself_keeps_its_runtime(
    desk: Desk, owner: grpc.aio.Channel, runner: FakeRunner
) -> None:
    """The holder does not run it, and has not to end what it left."""
    holder = await desk.begun()
    runner.stop_result = NOT_HELD

    async def end(_: runner_pb2.DeliverStopRequest) -> None:
        await holder.finish(runtime_after=turn_pb2.RUNTIME_AFTER_WARM)

    runner.stop_act = end
    command = await stop(desk, "t1")
    async with Channels() as channels:
        adapter = stop_adapter("direct", Leases(owner), Runners(channels))
        delivery = StopDelivery(DeliveryStore(desk.database), adapter, SystemClock())
        (claim,) = await delivery.claim(10)
        await delivery.handle(claim)
    assert len(runner.stops) == 1
    assert not runner.settled
    assert (await read(desk, command.command_id)).outcome == "NOT_RUNNING"


async def test_what_another_process_at_the_endpoint_does_not_run_says_nothing(
    desk: Desk, owner: grpc.aio.Channel, runner: FakeRunner
) -> None:
    await desk.begun()
    runner.stop_result, runner.holder = NOT_HELD, "one/2"
    async with delivering(desk, owner) as delivery:
        command = await stop(desk, "t1")
        delivery.wake()
        await eventually(lambda: len(runner.stops) >= 2)
    assert not runner.settled
    assert (await read(desk, command.command_id)).state is CommandState.PENDING


@pytest.mark.parametrize("taken_by", ["nobody", "a service", "a runner without an endpoint"])
async def test_without_a_runner_that_can_be_told_it_waits_for_one(
    desk: Desk, owner: grpc.aio.Channel, taker: Taker, database_url: str, taken_by: str
) -> None:
    await desk.begun()
    async with fake_runner("late") as late:
        role, endpoint = ("service", late.endpoint) if taken_by == "a service" else ("runner", "")
        lease = (await taker.session("s1", "x/1", endpoint=endpoint, role=role)).lease
        if taken_by == "nobody":
            await taker.release(lease)
        async with delivering(desk, owner, ManualClock()) as delivery:
            command = await stop(desk, "t1")
            delivery.wake()
            await until_postponed(database_url, 1)
            assert (await read(desk, command.command_id)).deliveries == 0
            assert not late.stops
            if taken_by != "nobody":
                await taker.release(lease)
            await taker.session("s1", late.holder, endpoint=late.endpoint)
            await execute(database_url, DUE)
            delivery.wake()
            await eventually(lambda: claimed(desk))
    assert len(late.stops) == 1


async def test_a_runner_out_of_reach_is_told_when_it_can_be(
    desk: Desk, owner: grpc.aio.Channel, taker: Taker, database_url: str
) -> None:
    await desk.begun()
    lease = (await taker.session("s1", "one/1", endpoint=NOWHERE)).lease
    async with delivering(desk, owner, ManualClock()) as delivery, fake_runner("two") as two:
        command = await stop(desk, "t1")
        delivery.wake()
        await until_postponed(database_url, 1)
        assert (await read(desk, command.command_id)).state is CommandState.PENDING
        await taker.release(lease)
        await taker.session("s1", two.holder, endpoint=two.endpoint)
        await execute(database_url, DUE)
        delivery.wake()
        await eventually(lambda: claimed(desk))


async def test_deliveries_of_one_session_do_not_wait_for_another(
    desk: Desk, owner: grpc.aio.Channel, runner: FakeRunner, taker: Taker
) -> None:
    gate = Gate()
    runner.stop_act = gate
    await desk.begun()
    await desk.begun("s2")
    async with delivering(desk, owner, ManualClock()) as delivery, fake_runner("two") as two:
        await taker.session("s2", two.holder, endpoint=two.endpoint)
        await stop(desk, "t1")
        delivery.wake()
        await gate.reached.wait()
        await stop(desk, "t1", "s2")
        delivery.wake()
        await eventually(lambda: bool(two.stops))
        gate.open.set()


async def test_claims_at_once_are_exclusive(desk: Desk, database: Database) -> None:
    for number in range(12):
        await desk.begun(f"s{number}")
        await stop(desk, "t1", f"s{number}")
    store = DeliveryStore(database)
    batches = await asyncio.gather(*(store.claim(5, hold=60.0) for _ in range(4)))
    claims = [claim.key.session_id for batch in batches for claim in batch]
    rest = [claim.key.session_id for claim in await store.claim(100, hold=60.0)]
    assert sorted(claims + rest) == sorted(f"s{number}" for number in range(12))


async def test_a_replica_that_stops_hands_its_claims_back(
    desk: Desk, owner: grpc.aio.Channel, runner: FakeRunner
) -> None:
    runner.stop_act = gate = Gate()
    await desk.begun()
    async with delivering(desk, owner) as delivery:
        await stop(desk, "t1")
        delivery.wake()
        await gate.reached.wait()
    due = await DeliveryStore(desk.database).next_due()
    assert due is not None
    assert due <= 0
    gate.open.set()


async def test_a_late_claim_changes_nothing(desk: Desk) -> None:
    holder = await desk.begun()
    command = await stop(desk, "t1")
    store = DeliveryStore(desk.database)
    (first,) = await store.claim(10, hold=0.0)
    (second,) = await store.claim(10, hold=60.0)
    assert (first.attempts, second.attempts) == (1, 2)
    await use(store, first, counted=False)
    assert (await read(desk, command.command_id)).state is CommandState.PENDING
    await stopped(holder)
    settled = await read(desk, command.command_id)
    await use(store, second, counted=False)
    assert await read(desk, command.command_id) == settled


async def use(store: DeliveryStore, claim: StopClaim, *, counted: bool) -> None:
    assert await store.count(claim) == counted
    await store.postpone(claim, timedelta(hours=1).total_seconds(), accepted=True)


def test_a_way_of_delivery_that_nobody_knows_is_refused() -> None:
    with pytest.raises(StartupRefused, match="stop_delivery: 'pigeon' is none of direct"):
        stop_adapter("pigeon", None, None)  # type: ignore[arg-type]
