"""The answer outbox, with a real owner and runners that record what they are told."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import grpc
import pytest
from moorage.common.v1 import record_pb2
from moorage.runner.v1 import runner_pb2

from services.common.channels import Channels, open_channel
from services.common.clock import Clock, ManualClock, SystemClock
from services.session.clients import Leases, Runners
from services.session.outbox.answers import AnswerDelivery
from services.session.store.answers import AnswerStore
from tests.conditions import eventually
from tests.databases import execute, fetch_value
from tests.fakes import Gate
from tests.session import samples
from tests.session.desks import Desk
from tests.session.fake_runners import FakeRunner, fake_runner
from tests.session.leasing import Taker
from tests.session.places import NOWHERE
from tests.session.questions import answer, run_out, undelivered
from tests.session.stops import stop

NOT_HELD = runner_pb2.DELIVERY_RESULT_NOT_HELD
ACCEPTED = runner_pb2.DELIVERY_RESULT_ACCEPTED
DUE = "UPDATE session.interactions SET delivery_time = clock_timestamp() WHERE delivery_time IS NOT NULL"


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
) -> AsyncIterator[AnswerDelivery]:
    """A replica's deliveries at work; by a manual clock it sleeps until it is woken."""
    clock = clock or SystemClock()
    async with Channels() as channels:
        delivery = AnswerDelivery(AnswerStore(desk.database), Leases(owner), Runners(channels), clock)
        task = asyncio.create_task(delivery.run())
        try:
            yield delivery
        finally:
            task.cancel()
            await asyncio.wait({task})


async def all_delivered(desk: Desk) -> bool:
    return not await undelivered(desk)


async def asked(desk: Desk, session_id: str = "s1") -> None:
    """A turn that waits for q1 and q2."""
    holder = await desk.begun(session_id)
    await holder.ask(1, "q1")
    await holder.ask(2, "q2")


async def test_an_answer_is_delivered_at_once_and_only_once_when_it_is_taken(
    desk: Desk, owner: grpc.aio.Channel, runner: FakeRunner
) -> None:
    await asked(desk)
    async with delivering(desk, owner, ManualClock()) as delivery:
        await answer(desk, "q1", "no")
        delivery.wake()
        await eventually(lambda: all_delivered(desk))
    (request,) = runner.answers
    assert (request.project, request.session_id, request.turn_id) == ("default", "s1", "t1")
    assert (request.interaction_id, request.option_id) == ("q1", "no")
    assert request.outcome == record_pb2.INTERACTION_OUTCOME_ANSWERED
    (traceparent,) = runner.answer_traceparents
    assert traceparent[3:35] == samples.TRACEPARENT[3:35]


async def test_what_expired_is_delivered_as_such(
    desk: Desk, owner: grpc.aio.Channel, runner: FakeRunner
) -> None:
    await asked(desk)
    async with delivering(desk, owner, ManualClock()) as delivery:
        await run_out(desk, "q2")
        await desk.interactions.expire(desk.holder().key)
        delivery.wake()
        await eventually(lambda: all_delivered(desk))
    (request,) = runner.answers
    assert (request.interaction_id, request.option_id) == ("q2", "")
    assert request.outcome == record_pb2.INTERACTION_OUTCOME_EXPIRED


@pytest.mark.parametrize("trouble", ["not held", "unreachable"])
async def test_it_is_delivered_again_more_and_more_seldom_until_it_is_taken(
    desk: Desk, owner: grpc.aio.Channel, taker: Taker, runner: FakeRunner, database_url: str, trouble: str
) -> None:
    await asked(desk)
    runner.answer_result = NOT_HELD
    if trouble == "unreachable":
        await taker.session("s2", runner.holder, endpoint=NOWHERE)
        await asked(desk, "s2")
    session_id = "s2" if trouble == "unreachable" else "s1"
    async with delivering(desk, owner, ManualClock()) as delivery:
        await answer(desk, "q1", "yes", session_id)
        delivery.wake()
        for number, expected in enumerate([0.2, 0.5, 1.0, 2.0, 5.0, 5.0], start=1):
            left = await until_postponed(database_url, number)
            assert expected - 1.0 < left <= expected
            assert len(runner.answers) == (number if trouble == "not held" else 0)
            if number < 6:
                await execute(database_url, DUE)
                delivery.wake()
        if trouble == "not held":
            runner.answer_result = ACCEPTED
            await execute(database_url, DUE)
            delivery.wake()
            await eventually(lambda: all_delivered(desk))
            assert len(runner.answers) == 7


async def until_postponed(database_url: str, attempts: int) -> float:
    """Seconds until the next delivery, once so many attempts are over."""

    async def over() -> bool:
        query = """
            SELECT delivery_attempts = $1 AND delivery_time < clock_timestamp() + interval '5 s'
            FROM session.interactions WHERE delivery_time IS NOT NULL
        """
        return bool(await fetch_value(database_url, query, attempts))

    await eventually(over)
    query = """
        SELECT extract(epoch FROM delivery_time - clock_timestamp())::float8
        FROM session.interactions WHERE delivery_time IS NOT NULL
    """
    left: float = await fetch_value(database_url, query)
    return left


async def test_nobody_is_told_while_no_runner_holds_the_session(
    desk: Desk, owner: grpc.aio.Channel, taker: Taker, database_url: str
) -> None:
    await asked(desk)
    async with fake_runner("one") as runner, delivering(desk, owner, ManualClock()) as delivery:
        await taker.session("s1", "session/1", endpoint=runner.endpoint, role="service", ttl=2.0)
        await answer(desk, "q1", "yes")
        delivery.wake()
        await until_postponed(database_url, 1)
        assert not runner.answers


@pytest.mark.parametrize("end", ["stop", "finish"])
async def test_what_is_void_is_not_delivered_any_more(
    desk: Desk, owner: grpc.aio.Channel, runner: FakeRunner, database_url: str, end: str
) -> None:
    """Not even by a delivery that was under way and failed."""
    await asked(desk)
    runner.answer_act = gate = Gate()
    runner.answer_result = NOT_HELD
    async with delivering(desk, owner, ManualClock()) as delivery:
        await answer(desk, "q1", "yes")
        delivery.wake()
        await gate.reached.wait()
        if end == "stop":
            await stop(desk, "t1")
        else:
            await desk.holder().finish(last_turn_seq=2)
        gate.open.set()
        await answered_once(delivery, desk, runner)
    assert await undelivered(desk) == []
    assert await AnswerStore(desk.database).next_due() is None


async def answered_once(delivery: AnswerDelivery, desk: Desk, runner: FakeRunner) -> None:
    """Let the loop look for more after its first delivery."""
    for _ in range(3):
        delivery.wake()
        await eventually(lambda: all_delivered(desk))
    assert len(runner.answers) == 1


async def test_a_delivery_that_hangs_holds_up_no_other(
    desk: Desk, owner: grpc.aio.Channel, taker: Taker, runner: FakeRunner
) -> None:
    await asked(desk)
    await asked(desk, "s2")
    runner.answer_act = gate = Gate()
    async with delivering(desk, owner, ManualClock()) as delivery, fake_runner("two") as two:
        await taker.session("s2", two.holder, endpoint=two.endpoint)
        await answer(desk, "q1", "yes")
        delivery.wake()
        await gate.reached.wait()
        await answer(desk, "q1", "yes", "s2")
        delivery.wake()
        await eventually(lambda: bool(two.answers))
        gate.open.set()


async def test_claims_at_once_are_exclusive_and_one_that_is_late_changes_nothing(desk: Desk) -> None:
    for number in range(12):
        await asked(desk, f"s{number}")
        await answer(desk, "q1", "yes", f"s{number}")
    store = AnswerStore(desk.database)
    batches = await asyncio.gather(*(store.claim(5, hold=0.0) for _ in range(2)))
    claims = [claim for batch in batches for claim in batch]
    assert len({claim.session_id for claim in claims}) == 10
    again = await store.claim(100, hold=60.0)
    assert len(again) == 12
    await store.postpone(claims[0], -60.0)
    assert await store.claim(100, hold=60.0) == []
    await store.hasten()
    assert len(await store.claim(100, hold=60.0)) == 12


async def test_a_replica_that_stops_hands_its_claims_back(
    desk: Desk, owner: grpc.aio.Channel, runner: FakeRunner
) -> None:
    await asked(desk)
    runner.answer_act = gate = Gate()
    async with delivering(desk, owner) as delivery:
        await answer(desk, "q1", "yes")
        delivery.wake()
        await gate.reached.wait()
    due = await AnswerStore(desk.database).next_due()
    assert due is not None
    assert due <= 0
    gate.open.set()
