"""A turn that takes the slot is offered at once, to whoever kept the session's agent first (T3)."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass

import grpc
import pytest
from moorage.common.v1 import turn_pb2
from moorage.runner.v1 import runner_pb2

from services.common.channels import Channels, open_channel
from services.common.clock import ManualClock
from services.session.clients import Leases, Runners
from services.session.outbox.dispatch import Dispatcher
from services.session.outbox.offers import Claim
from services.session.requests import RequestKey
from services.session.store.dispatch import DispatchStore
from services.session.store.writing import Writer
from tests.conditions import eventually
from tests.session import samples
from tests.session.desks import Desk
from tests.session.fake_runners import FakeRunner, fake_runner
from tests.session.leasing import Taker
from tests.session.starts import Starter

WARM, ENDED = turn_pb2.RUNTIME_AFTER_WARM, turn_pb2.RUNTIME_AFTER_ENDED


@dataclass
class Replica:
    """What dispatches; by its clock nothing is ever due again."""

    desk: Desk
    leases: Leases
    dispatcher: Dispatcher

    async def start(self, turn_id: str) -> None:
        """Start a turn of s1 as the service does."""
        writer = Writer(self.desk.database, lambda *_: None, self.dispatcher.hand_over)
        key = RequestKey("default", "s1", "StartTurn", "", b"")
        await Starter(self.desk.database, writer).start(samples.new_turn(turn_id, "s1"), key)


@pytest.fixture
async def owner(owner_address: str) -> AsyncIterator[grpc.aio.Channel]:
    async with open_channel(owner_address) as channel:
        yield channel


@pytest.fixture
async def replica(desk: Desk, owner: grpc.aio.Channel) -> AsyncIterator[Replica]:
    async with Channels() as channels:
        leases = Leases(owner)
        dispatcher = Dispatcher(
            DispatchStore(desk.database),
            desk.journal,
            leases,
            Runners(channels),
            ManualClock(),
            pool="default",
            window=60.0,
        )
        task = asyncio.create_task(dispatcher.run())
        yield Replica(desk, leases, dispatcher)
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


@pytest.fixture
async def runners(owner: grpc.aio.Channel) -> AsyncIterator[tuple[FakeRunner, FakeRunner]]:
    """Two live ones."""
    async with fake_runner("one") as one, fake_runner("two") as two:
        for runner in (one, two):
            await Taker(owner).runner(runner.name, runner.endpoint)
        yield one, two


async def ended(desk: Desk, runner: FakeRunner, after: turn_pb2.RuntimeAfter.ValueType) -> None:
    """The session s1, whose turn t1 this runner has ended."""
    holder = await desk.begun(name=runner.holder)
    await holder.finish(runtime_after=after)


async def test_whoever_kept_the_agent_is_asked_first_though_owner_cannot_be_asked(
    desk: Desk, replica: Replica, owner: grpc.aio.Channel, runners: tuple[FakeRunner, FakeRunner]
) -> None:
    one, two = runners
    await replica.leases.list_live("runners/")
    await ended(desk, two, WARM)
    await owner.close()
    await replica.start("t2")
    await eventually(lambda: two.turns == ["s1/t2"])
    assert one.turns == []


async def test_when_that_one_does_not_take_it_any_other_may(
    desk: Desk, replica: Replica, runners: tuple[FakeRunner, FakeRunner]
) -> None:
    one, two = runners
    await replica.leases.list_live("runners/")
    await ended(desk, two, WARM)
    two.result = runner_pb2.DISPATCH_RESULT_DRAINING
    await replica.start("t2")
    await eventually(lambda: one.turns == ["s1/t2"])
    assert set(two.turns) == {"s1/t2"}


async def test_nobody_is_preferred_who_kept_nothing(
    desk: Desk, replica: Replica, owner: grpc.aio.Channel, runners: tuple[FakeRunner, FakeRunner]
) -> None:
    one, two = runners
    await replica.leases.list_live("runners/")
    await ended(desk, two, ENDED)
    # Another session drives its load up.
    await desk.session("s2")
    await desk.turn("busy", "s2")
    await desk.holder("s2", turn_id="busy", name=two.holder).begin()
    await replica.start("t2")
    await eventually(lambda: one.turns == ["s1/t2"])
    assert two.turns == []


async def test_nobody_else_offers_it_meanwhile_and_somebody_does_when_its_replica_is_gone(
    desk: Desk, replica: Replica
) -> None:
    taken: list[Claim] = []
    others = DispatchStore(desk.database)
    await desk.session()
    writer = Writer(desk.database, lambda *_: None, taken.append)
    key = RequestKey("default", "s1", "StartTurn", "", b"")
    await Starter(desk.database, writer).start(samples.new_turn("t1", "s1"), key)
    assert [(claim.turn_id, claim.profile, claim.attempts, claim.kept_by) for claim in taken] == [
        ("t1", "demo", 1, "")
    ]
    assert await others.claim(10, hold=5.0, window=60.0) == []
    due = await others.next_due()
    assert due is not None
    assert 0 < due <= 2
    async with desk.database.connection() as connection:
        await connection.execute(
            "UPDATE session.turns SET dispatch_time = dispatch_time - interval '2 seconds'"
        )
    (claim,) = await others.claim(10, hold=5.0, window=60.0)
    assert (claim.turn_id, claim.attempts, claim.traceparent) == ("t1", 2, taken[0].traceparent)
