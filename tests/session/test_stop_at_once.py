"""A Stop goes to whoever began its turn at once, without looking for its lease (S6)."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass

import grpc
import pytest
from moorage.runner.v1 import runner_pb2

from services.common.channels import Channels, open_channel
from services.common.clock import ManualClock
from services.common.validation import mint_id
from services.session.clients import Leases, Runners
from services.session.commands import CommandState, StopClaim, StopDraft
from services.session.journal.rules import SessionKey
from services.session.outbox.delivery import StopDelivery
from services.session.outbox.direct import stop_adapter
from services.session.requests import RequestKey
from services.session.store.delivery import DeliveryStore
from services.session.store.stopping import StopStore
from tests.conditions import eventually
from tests.session import samples
from tests.session.desks import Desk
from tests.session.fake_runners import FakeRunner, fake_runner
from tests.session.leasing import Taker
from tests.session.stops import PATIENCE, read

KEY = SessionKey("default", "s1")


@dataclass
class Replica:
    """What delivers, and how it knows of leases."""

    desk: Desk
    leases: Leases
    delivery: StopDelivery

    async def stop(self, deliver: Callable[[StopClaim], None] | None = None) -> str:
        """Order a Stop of t1 as the service does; its command."""
        draft = StopDraft(KEY, mint_id("command"), "t1", samples.TRACEPARENT, self.desk.clock.boottime())
        request = RequestKey(*KEY, "StopTurn", "", b"")
        store = StopStore(self.desk.writer, self.desk.clock, patience=PATIENCE)
        return await store.stop(draft, request, deliver or self.delivery.hand_over)

    async def is_claimed(self, command_id: str) -> bool:
        """Whether a runner has taken it."""
        return (await read(self.desk, command_id)).state is CommandState.CLAIMED


@pytest.fixture
async def owner(owner_address: str) -> AsyncIterator[grpc.aio.Channel]:
    async with open_channel(owner_address) as channel:
        yield channel


@pytest.fixture
async def replica(desk: Desk, owner: grpc.aio.Channel) -> AsyncIterator[Replica]:
    """By its clock nothing is ever due again."""
    async with Channels() as channels:
        leases = Leases(owner)
        adapter = stop_adapter("direct", leases, Runners(channels))
        delivery = StopDelivery(DeliveryStore(desk.database), adapter, ManualClock())
        task = asyncio.create_task(delivery.run())
        yield Replica(desk, leases, delivery)
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


@pytest.fixture
async def runner() -> AsyncIterator[FakeRunner]:
    async with fake_runner("one") as runner:
        yield runner


async def test_whoever_began_the_turn_is_told_though_owner_cannot_be_asked(
    desk: Desk, replica: Replica, owner: grpc.aio.Channel, runner: FakeRunner
) -> None:
    await Taker(owner).session("s1", runner.holder, endpoint=runner.endpoint)
    assert await replica.leases.driver(KEY.resource) is not None
    await desk.begun(name=runner.holder)
    await owner.close()
    command_id = await replica.stop()
    await eventually(lambda: replica.is_claimed(command_id))
    (told,) = runner.stops
    assert (told.turn_id, told.command_id, told.traceparent) == ("t1", command_id, samples.TRACEPARENT)
    assert (await read(desk, command_id)).deliveries == 1


@pytest.mark.parametrize("answer", ["nobody answers", "another process answers", "it is not held"])
async def test_when_that_one_does_not_take_it_the_live_lease_tells_who_does(
    desk: Desk, replica: Replica, owner: grpc.aio.Channel, runner: FakeRunner, answer: str
) -> None:
    taker = Taker(owner)
    async with fake_runner("other") as other:
        begun = await taker.session("s1", "gone/1", endpoint=other.endpoint)
        assert await replica.leases.driver(KEY.resource) is not None
        await taker.release(begun.lease)
        await taker.session("s1", runner.holder, endpoint=runner.endpoint)
        await desk.begun(name="gone/1")
        other.stop_result = runner_pb2.DELIVERY_RESULT_NOT_HELD
        other.holder = "gone/1" if answer == "it is not held" else "stranger/1"
        if answer == "nobody answers":
            other.stop_act = refuse
        command_id = await replica.stop()
        await eventually(lambda: replica.is_claimed(command_id))
        assert len(other.stops) == 1
    assert [told.command_id for told in runner.stops] == [command_id]
    assert other.settled == runner.settled == []


async def refuse(_: object) -> None:
    raise RuntimeError("it does not answer")


async def test_one_of_a_holder_never_seen_goes_by_the_lease(
    desk: Desk, replica: Replica, owner: grpc.aio.Channel, runner: FakeRunner
) -> None:
    await Taker(owner).session("s1", runner.holder, endpoint=runner.endpoint)
    await desk.begun(name=runner.holder)
    assert replica.leases.endpoint_of(runner.holder) == ""
    command_id = await replica.stop()
    await eventually(lambda: replica.is_claimed(command_id))
    assert replica.leases.endpoint_of(runner.holder) == runner.endpoint


async def test_nobody_else_delivers_it_meanwhile_and_somebody_does_when_its_replica_is_gone(
    desk: Desk, replica: Replica
) -> None:
    others = DeliveryStore(desk.database)
    await desk.begun()
    taken: list[StopClaim] = []
    command_id = await replica.stop(taken.append)
    assert [(claim.command_id, claim.attempts, claim.new_for) for claim in taken] == [
        (command_id, 1, "runner/1")
    ]
    assert await others.claim(10, hold=5.0) == []
    due = await others.next_due()
    assert due is not None
    assert 0 < due <= 2
    async with desk.database.connection() as connection:
        await connection.execute(
            "UPDATE session.commands SET delivery_time = delivery_time - interval '2 seconds'"
        )
    (claim,) = await others.claim(10, hold=5.0)
    assert (claim.command_id, claim.attempts, claim.new_for) == (command_id, 2, "")
