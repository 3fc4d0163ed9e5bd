"""The dispatch outbox (T3), with a real owner and runners that record what they are asked."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator

import grpc
import pytest
from moorage.common.v1 import record_pb2
from moorage.runner.v1 import runner_pb2

from services.common.channels import Channels, open_channel
from services.common.clock import SystemClock
from services.common.errors import MoorageError
from services.session.clients import Leases, Runners
from services.session.journal.rules import SessionKey
from services.session.outbox.dispatch import Dispatcher
from services.session.store.dispatch import DispatchStore
from services.session.turns import EndReason, TurnState
from tests.conditions import eventually
from tests.session import samples
from tests.session.desks import Desk
from tests.session.fake_runners import FakeRunner, fake_runner
from tests.session.leasing import Taker
from tests.session.places import NOWHERE

DRAINING = runner_pb2.DISPATCH_RESULT_DRAINING
FULL = runner_pb2.DISPATCH_RESULT_FULL
ELSEWHERE = runner_pb2.DISPATCH_RESULT_LEASE_HELD_ELSEWHERE


@pytest.fixture
async def owner(owner_address: str) -> AsyncIterator[grpc.aio.Channel]:
    async with open_channel(owner_address) as channel:
        yield channel


@pytest.fixture
def taker(owner: grpc.aio.Channel) -> Taker:
    return Taker(owner)


@pytest.fixture
async def runners(taker: Taker) -> AsyncIterator[list[FakeRunner]]:
    """Two live runners of the pool `default` with the profile `demo`."""
    async with fake_runner("one") as one, fake_runner("two") as two:
        for runner in (one, two):
            await taker.runner(runner.name, runner.endpoint)
        yield [one, two]


@contextlib.asynccontextmanager
async def dispatching(
    desk: Desk, owner: grpc.aio.Channel, *, window: float = 60.0
) -> AsyncIterator[Dispatcher]:
    """A replica's dispatcher at work."""
    async with Channels() as channels:
        dispatcher = Dispatcher(
            DispatchStore(desk.database),
            desk.journal,
            Leases(owner),
            Runners(channels),
            SystemClock(),
            pool="default",
            window=window,
        )
        task = asyncio.create_task(dispatcher.run())
        try:
            yield dispatcher
        finally:
            task.cancel()
            await asyncio.wait({task})


def asked(runners: list[FakeRunner]) -> list[str]:
    return [turn for runner in runners for turn in runner.turns]


async def test_an_admitted_turn_is_offered_at_once_and_until_it_is_begun(
    desk: Desk, owner: grpc.aio.Channel, runners: list[FakeRunner]
) -> None:
    await desk.session()
    async with dispatching(desk, owner) as dispatcher:
        await desk.turn()
        dispatcher.wake()
        await eventually(lambda: len(asked(runners)) >= 3)
        assert len({runner.name for runner in runners if runner.asked}) == 1
        await desk.holder().begin()
        before = await fetch_attempts(desk)
        await desk.session("s2")
        await desk.turn("t1", "s2")
        dispatcher.wake()
        await eventually(lambda: asked(runners).count("s2/t1") >= 3)
        assert await fetch_attempts(desk) == before

        async def is_told() -> bool:
            return (await desk.read_turn(session_id="s2")).waiting_reason.endswith("has taken the turn")

        # Not afterwards: a dispatcher that stops says so of what it was about to offer.
        await eventually(is_told)
    chosen = next(runner for runner in runners if "s1/t1" in runner.turns)
    request = chosen.asked[0]
    assert (request.project, request.traceparent) == ("default", samples.TRACEPARENT)
    assert (await desk.read_turn()).waiting_reason == ""


async def fetch_attempts(desk: Desk) -> int:
    return (await desk.read_turn()).dispatch_attempts


async def test_a_dispatch_goes_on_in_the_trace_of_the_client(
    desk: Desk, owner: grpc.aio.Channel, runners: list[FakeRunner]
) -> None:
    await desk.session()
    await desk.turn()
    async with dispatching(desk, owner):
        await eventually(lambda: bool(asked(runners)))
    (traceparent, *_) = [each for runner in runners for each in runner.traceparents]
    assert traceparent[3:35] == samples.TRACEPARENT[3:35]


async def test_turns_spread_over_the_runners_by_what_each_has_in_progress(
    desk: Desk, owner: grpc.aio.Channel, runners: list[FakeRunner]
) -> None:
    # Three turns that one of them runs already count.
    for number in range(3):
        await desk.begun(f"begun{number}", name="one/1")
    for number in range(9):
        await desk.session(f"s{number}")
        await desk.turn("t1", f"s{number}")
    async with dispatching(desk, owner):
        await eventually(lambda: len(set(asked(runners))) == 9)
    one, two = runners
    assert (len(set(one.turns)), len(set(two.turns))) == (3, 6)


@pytest.mark.parametrize("refusal", [DRAINING, FULL])
async def test_a_runner_that_refuses_is_passed_over_at_once(
    desk: Desk,
    owner: grpc.aio.Channel,
    runners: list[FakeRunner],
    refusal: runner_pb2.DispatchResult.ValueType,
) -> None:
    runners[0].result = refusal
    await desk.session()
    await desk.turn()
    async with dispatching(desk, owner):
        await eventually(lambda: bool(runners[1].asked))
    assert len(runners[0].asked) <= 1
    assert (await desk.read_turn()).dispatch_endpoint == runners[1].endpoint


async def test_a_dead_runner_is_passed_over_at_once(
    desk: Desk, owner: grpc.aio.Channel, taker: Taker
) -> None:
    await taker.runner("dead", NOWHERE)
    async with fake_runner("live") as live:
        await taker.runner("live", live.endpoint)
        await desk.session()
        await desk.turn()
        async with dispatching(desk, owner):
            await eventually(lambda: bool(live.asked))


async def test_the_waiting_reason_says_what_is_missing(
    desk: Desk, owner: grpc.aio.Channel, taker: Taker
) -> None:
    await desk.session()
    await desk.turn()
    async with dispatching(desk, owner), fake_runner("one") as one, fake_runner("two") as two:
        await waits_for(desk, "no live runner serves the pool default")
        await taker.runner("other", one.endpoint, pool="other")
        await taker.runner("one", one.endpoint, profiles="codex, opencode")
        await waits_for(desk, "no live runner offers the profile demo in the pool default")
        await taker.runner("zero", one.endpoint, capacity=0)
        await waits_for(
            desk, "every runner of the pool default that offers the profile demo is full", within=15.0
        )
        two.result = DRAINING
        lease = (await taker.runner("two", two.endpoint)).lease
        await waits_for(desk, "runner two/1 is shutting down", within=15.0)
        await taker.release(lease)
    assert not one.asked


async def waits_for(desk: Desk, reason: str, within: float = 10.0) -> None:
    async def waits() -> bool:
        return (await desk.read_turn()).waiting_reason == reason

    await eventually(waits, within=within, what=reason)


async def test_the_holder_of_the_session_is_asked_and_nobody_else(
    desk: Desk, owner: grpc.aio.Channel, runners: list[FakeRunner], taker: Taker
) -> None:
    await desk.session()
    async with fake_runner("holder") as holder:
        await taker.session("s1", "holder/1", endpoint=holder.endpoint)
        await desk.turn()
        holder.result = FULL
        async with dispatching(desk, owner):
            await eventually(lambda: len(holder.asked) >= 2)
            reason = (await desk.read_turn()).waiting_reason
            assert reason.startswith("runner holder/1 is full, and drives the session until ")
    assert not asked(runners)


async def test_a_lease_of_a_service_does_not_count(
    desk: Desk, owner: grpc.aio.Channel, runners: list[FakeRunner], taker: Taker
) -> None:
    await desk.session()
    async with fake_runner("watchdog") as watchdog:
        await taker.session("s1", "session/1", endpoint=watchdog.endpoint, role="service")
        await desk.turn()
        async with dispatching(desk, owner):
            await eventually(lambda: bool(asked(runners)))
        assert not watchdog.asked


async def test_a_holder_found_meanwhile_is_asked_instead(
    desk: Desk, owner: grpc.aio.Channel, runners: list[FakeRunner], taker: Taker
) -> None:
    await desk.session()
    await desk.turn()
    async with fake_runner("holder") as holder:

        async def taken(_: object) -> None:
            if not holder.asked:
                await taker.session("s1", "holder/1", endpoint=holder.endpoint)

        for runner in runners:
            runner.act, runner.result = taken, ELSEWHERE
        async with dispatching(desk, owner):
            await eventually(lambda: bool(holder.asked))
        assert len(asked(runners)) == 1


async def test_a_dead_holder_is_waited_for_until_its_lease_ends(
    desk: Desk, owner: grpc.aio.Channel, runners: list[FakeRunner], taker: Taker
) -> None:
    await desk.session()
    await taker.session("s1", "dead/1", endpoint=NOWHERE, ttl=2.0)
    await desk.turn()
    async with dispatching(desk, owner):
        await eventually(lambda: dead_holder_told(desk))
        assert not asked(runners)
        await eventually(lambda: bool(asked(runners)))


async def dead_holder_told(desk: Desk) -> bool:
    reason = (await desk.read_turn()).waiting_reason
    return reason.startswith("runner dead/1 cannot be reached, and drives the session until ")


async def test_a_turn_that_nobody_begins_in_time_has_failed(desk: Desk, owner: grpc.aio.Channel) -> None:
    await desk.session()
    await desk.turn()
    async with dispatching(desk, owner, window=0.5):
        await eventually(lambda: ended(desk))
    turn = await desk.read_turn()
    assert (turn.state, turn.end_reason) == (TurnState.FAILED, EndReason.NO_RUNNER)
    assert turn.end_time is not None
    assert 0.5 <= (turn.end_time - turn.create_time).total_seconds() < 2.0
    user, error, end = await desk.transcript()
    assert (user.kind, error.record_id, end.record_id) == ("user_message", "t1/error", "t1/turn_ended")
    told = record_pb2.RecordBody.FromString(error.body).error.error
    assert told.code == "NO_RUNNER"
    assert told.message == "not begun within 0.5 s: no live runner serves the pool default"
    assert desk.changed[-1] == SessionKey("default", "s1")
    with pytest.raises(MoorageError) as refusal:
        await desk.holder().begin()
    assert refusal.value.reason_name == "TURN_ENDED"
    await desk.turn("t2")


async def ended(desk: Desk) -> bool:
    return (await desk.read_turn()).end_time is not None


async def test_several_replicas_offer_each_turn_once(
    desk: Desk, owner: grpc.aio.Channel, runners: list[FakeRunner]
) -> None:
    async def begin(request: runner_pb2.DispatchTurnRequest) -> None:
        await desk.holder(request.session_id).begin()

    for runner in runners:
        runner.act = begin
    for number in range(40):
        await desk.session(f"s{number}")
        await desk.turn("t1", f"s{number}")
    async with dispatching(desk, owner), dispatching(desk, owner), dispatching(desk, owner):
        await eventually(lambda: len(set(asked(runners))) == 40, within=30.0)
    offers = Counter(asked(runners))
    for number in range(40):
        # Once, unless an attempt took so long that its claim was given up; never two for one claim.
        turn = await desk.read_turn("t1", f"s{number}")
        assert 1 <= offers[f"s{number}/t1"] <= turn.dispatch_attempts
    assert len(asked(runners)) < 50


async def test_a_replica_that_stops_hands_its_claims_back(
    desk: Desk, owner: grpc.aio.Channel, runners: list[FakeRunner]
) -> None:
    never = asyncio.Event()

    async def hang(_: object) -> None:
        await never.wait()

    for runner in runners:
        runner.act = hang
    await desk.session()
    await desk.turn()
    async with dispatching(desk, owner):
        await eventually(lambda: bool(asked(runners)))
    store = DispatchStore(desk.database)
    due = await store.next_due()
    assert due is not None
    assert due <= 0
    (claim,) = await store.claim(10, hold=5.0, window=60.0)
    assert (claim.turn_id, claim.attempts, claim.overdue) == ("t1", 2, False)


async def test_while_owner_is_away_turns_wait_and_say_so(desk: Desk, taker: Taker) -> None:
    await desk.session()
    await desk.turn()
    async with open_channel(NOWHERE) as nowhere, dispatching(desk, nowhere):
        await eventually(lambda: owner_is_away(desk))
    assert (await desk.read_turn()).state is TurnState.ADMITTED


async def owner_is_away(desk: Desk) -> bool:
    return (await desk.read_turn()).waiting_reason.startswith("owner is unavailable")
