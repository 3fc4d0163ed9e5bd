"""Acquire: a lost answer leaves no lease that nobody knows of."""

from __future__ import annotations

import asyncio

import grpc
import pytest
from moorage.owner.v1 import lease_pb2

from services.common.clock import ManualClock
from services.common.errors import DependencyUnavailable, FailedPrecondition, InvalidArgument
from services.fencing.errors import LeaseHeld
from services.fencing.loop import LeaseLoop, mint_holder
from tests.conditions import eventually
from tests.fencing.scripted import Context, ScriptedOwner, failing, held_by, refusing
from tests.fencing.timing import advance_until

RUNNER = {"role": "runner"}


async def test_what_is_asked_for_is_what_is_held(owner: ScriptedOwner, leases: LeaseLoop) -> None:
    lease = await leases.acquire("a", ttl=2.5, endpoint="host:1", labels={"role": "service", "pool": "p"})
    assert (lease.resource, lease.holder, lease.token, lease.ttl) == ("a", "runner/1", 1, 2.5)
    assert (lease.endpoint, dict(lease.labels)) == ("host:1", {"role": "service", "pool": "p"})
    assert lease.held
    assert not lease.lost.is_set()
    assert leases.leases == {"a": lease}


async def test_a_live_lease_of_another_is_refused(owner: ScriptedOwner, leases: LeaseLoop) -> None:
    owner.before = [refusing(held_by("bob/1", "a"))]
    with pytest.raises(LeaseHeld) as caught:
        await leases.acquire("a", ttl=15, labels=RUNNER)
    assert caught.value.metadata["holder"] == "bob/1"
    assert caught.value.retry_after == 3.0
    assert len(owner.asked) == 1
    assert not leases.leases


async def test_other_refusals_pass_through(owner: ScriptedOwner, leases: LeaseLoop) -> None:
    owner.before = [failing(grpc.StatusCode.FAILED_PRECONDITION), failing(grpc.StatusCode.INVALID_ARGUMENT)]
    with pytest.raises(FailedPrecondition) as caught:
        await leases.acquire("a", ttl=15, labels=RUNNER)
    assert not isinstance(caught.value, LeaseHeld)
    with pytest.raises(InvalidArgument):
        await leases.acquire("a", ttl=15, labels=RUNNER)


async def test_a_lost_answer_is_asked_for_again_with_the_same_id(
    owner: ScriptedOwner, leases: LeaseLoop, clock: ManualClock
) -> None:
    owner.after = [failing(grpc.StatusCode.UNAVAILABLE), failing(grpc.StatusCode.INTERNAL)]
    acquiring = asyncio.ensure_future(leases.acquire("a", ttl=15, labels=RUNNER))
    await advance_until(clock, acquiring.done)
    lease = await acquiring
    ids = [request.request_id for request in owner.asked_for(lease_pb2.AcquireLeaseRequest)]
    assert len(ids) == 3
    assert len(set(ids)) == 1
    assert lease.token == owner.token == 1
    # Its time began when the first attempt was sent, which may be the one that was granted.
    assert lease.deadline == 1000 + 13.5


async def test_each_acquisition_has_an_id_of_its_own(owner: ScriptedOwner, leases: LeaseLoop) -> None:
    for name in "ab":
        await leases.acquire(name, ttl=15, labels=RUNNER)
    first, second = owner.asked_for(lease_pb2.AcquireLeaseRequest)
    assert first.request_id != second.request_id


async def test_it_gives_up_in_time_and_gives_back_what_it_may_have_got(
    owner: ScriptedOwner, leases: LeaseLoop, clock: ManualClock
) -> None:
    owner.after = [failing(grpc.StatusCode.UNAVAILABLE)] * 200
    acquiring = asyncio.ensure_future(leases.acquire("a", ttl=15, labels=RUNNER))
    await advance_until(clock, acquiring.done)
    with pytest.raises(DependencyUnavailable):
        await acquiring
    assert clock.boottime() <= 1000 + 7.5 + 0.1
    assert owner.asked_for(lease_pb2.ReleaseLeaseRequest) == []
    owner.after = []
    await advance_until(clock, lambda: bool(owner.asked_for(lease_pb2.ReleaseLeaseRequest)))
    [released] = owner.asked_for(lease_pb2.ReleaseLeaseRequest)
    assert (released.resource, released.holder, released.token) == ("a", "runner/1", 1)
    assert owner.token == 1
    assert not leases.leases


async def test_a_cancelled_acquisition_gives_back_what_it_may_have_got(
    owner: ScriptedOwner, leases: LeaseLoop, clock: ManualClock
) -> None:
    granted = asyncio.Event()

    async def never_answer(_context: Context) -> None:
        granted.set()
        await asyncio.Event().wait()

    owner.after = [never_answer]
    acquiring = asyncio.ensure_future(leases.acquire("a", ttl=15, labels=RUNNER))
    await granted.wait()
    acquiring.cancel()
    with pytest.raises(asyncio.CancelledError):
        await acquiring
    await eventually(lambda: bool(owner.asked_for(lease_pb2.ReleaseLeaseRequest)))
    assert not leases.leases


async def test_a_new_acquisition_waits_for_the_old_one_to_be_given_back(
    owner: ScriptedOwner, channel: grpc.aio.Channel, clock: ManualClock
) -> None:
    """Else it would be refused because of its own process."""
    leases = LeaseLoop("runner/1", channel, clock)
    granted = asyncio.Event()

    async def never_answer(_context: Context) -> None:
        granted.set()
        await asyncio.Event().wait()

    owner.after = [never_answer]
    acquiring = asyncio.ensure_future(leases.acquire("a", ttl=15, labels=RUNNER))
    await granted.wait()
    acquiring.cancel()
    await asyncio.wait({acquiring})
    lease = await leases.acquire("a", ttl=15, labels=RUNNER)
    kinds = [type(request).__name__ for request in owner.asked]
    assert kinds == [
        "AcquireLeaseRequest",
        "AcquireLeaseRequest",
        "ReleaseLeaseRequest",
        "AcquireLeaseRequest",
    ]
    first, again, _, new = owner.asked
    assert first.request_id == again.request_id != new.request_id
    assert (lease.token, lease.held) == (2, True)


async def test_what_another_holds_by_now_need_not_be_given_back(
    owner: ScriptedOwner, channel: grpc.aio.Channel, clock: ManualClock
) -> None:
    leases = LeaseLoop("runner/1", channel, clock)
    owner.after = [failing(grpc.StatusCode.UNAVAILABLE)]
    with pytest.raises(DependencyUnavailable):
        await leases.acquire("a", ttl=15, labels=RUNNER, timeout=0)
    owner.before = [refusing(held_by("bob/1", "a")), refusing(held_by("bob/1", "a"))]
    for _ in range(2):
        with pytest.raises(LeaseHeld):
            await leases.acquire("a", ttl=15, labels=RUNNER)
        owner.before = [refusing(held_by("bob/1", "a"))]
    # Asked for once more because of the first call, then only by the two others.
    ids = [request.request_id for request in owner.asked_for(lease_pb2.AcquireLeaseRequest)]
    assert (len(ids), len(set(ids))) == (4, 3)


def test_each_start_is_another_holder() -> None:
    assert mint_holder("runner-1") != mint_holder("runner-1")
    assert mint_holder("runner-1").startswith("runner-1/")
    for name in ("", "a/b", "a b", "a" * 65):
        with pytest.raises(InvalidArgument):
            mint_holder(name)
