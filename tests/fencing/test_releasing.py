"""Release: from the decision on a lease is not renewed any more, whatever owner answers (F1)."""

from __future__ import annotations

import asyncio

import grpc
from moorage.owner.v1 import lease_pb2

from services.common.clock import ManualClock
from services.fencing.loop import LeaseLoop
from tests.conditions import eventually
from tests.fencing.scripted import Context, ScriptedOwner, failing, refusing, stale
from tests.fencing.timing import advance_until

RUNNER = {"role": "runner"}


async def test_it_is_not_held_from_the_call_on(owner: ScriptedOwner, leases: LeaseLoop) -> None:
    lease = await leases.acquire("a", ttl=15, labels=RUNNER)
    releasing = asyncio.ensure_future(leases.release(lease))
    await asyncio.sleep(0)
    assert (lease.held, dict(leases.leases)) == (False, {})
    await releasing
    [request] = owner.asked_for(lease_pb2.ReleaseLeaseRequest)
    assert (request.resource, request.holder, request.token) == ("a", "runner/1", 1)


async def test_a_released_lease_is_neither_renewed_nor_lost(
    owner: ScriptedOwner, leases: LeaseLoop, clock: ManualClock
) -> None:
    lease = await leases.acquire("a", ttl=15, labels=RUNNER)
    kept = await leases.acquire("b", ttl=15, labels=RUNNER)
    lost: list[object] = []
    lease.on_lost(lost.append)
    await leases.release(lease)
    for calls in (1, 2, 3):
        await clock.until_sleeping(2)
        await clock.advance(5)
        await eventually(lambda calls=calls: len(owner.renewals) == calls)  # type: ignore[misc]
        await eventually(lambda calls=calls: kept.deadline == 1000 + 5 * calls + 13.5)  # type: ignore[misc]
    assert owner.renewals == [["b"]] * 3
    assert (lost, lease.lost.is_set()) == ([], False)


async def test_a_renewal_on_its_way_does_not_bring_it_back(
    owner: ScriptedOwner, leases: LeaseLoop, clock: ManualClock
) -> None:
    lease = await leases.acquire("a", ttl=15, labels=RUNNER)
    renewing, answer = asyncio.Event(), asyncio.Event()

    async def hang(_context: Context) -> None:
        renewing.set()
        await answer.wait()

    owner.before = [hang]
    await clock.until_sleeping(2)
    await clock.advance(5)
    await renewing.wait()
    before = lease.grant
    await leases.release(lease)
    answer.set()
    await leases.acquire("b", ttl=15, labels=RUNNER)
    await clock.until_sleeping(2)
    await clock.advance(5)
    await eventually(lambda: len(owner.renewals) == 2)
    assert owner.renewals[1] == ["b"]
    assert (lease.held, lease.grant) == (False, before)


async def test_what_owner_no_longer_knows_as_ours_is_released(
    owner: ScriptedOwner, leases: LeaseLoop
) -> None:
    lease = await leases.acquire("a", ttl=15, labels=RUNNER)
    owner.before = [refusing(stale("a"))]
    await leases.release(lease)
    assert not lease.held


async def test_it_is_repeated_while_owner_is_away(
    owner: ScriptedOwner, leases: LeaseLoop, clock: ManualClock
) -> None:
    lease = await leases.acquire("a", ttl=15, labels=RUNNER)
    owner.before = [failing(grpc.StatusCode.UNAVAILABLE), failing(grpc.StatusCode.DEADLINE_EXCEEDED)]
    releasing = asyncio.ensure_future(leases.release(lease))
    await advance_until(clock, releasing.done)
    await releasing
    assert len(owner.asked_for(lease_pb2.ReleaseLeaseRequest)) == 3


async def test_an_owner_that_stays_away_is_no_error(
    owner: ScriptedOwner, leases: LeaseLoop, clock: ManualClock
) -> None:
    lease = await leases.acquire("a", ttl=15, labels=RUNNER)
    owner.before = [failing(grpc.StatusCode.UNAVAILABLE)] * 200
    releasing = asyncio.ensure_future(leases.release(lease))
    await advance_until(clock, releasing.done)
    await releasing
    assert clock.boottime() <= 1000 + 5.1
    assert owner.renewals == []


async def test_a_lost_lease_may_be_released(
    owner: ScriptedOwner, leases: LeaseLoop, clock: ManualClock
) -> None:
    """Its holder ended the work: others need not wait for the lease to end."""
    lease = await leases.acquire("a", ttl=15, labels=RUNNER)
    owner.before = [failing(grpc.StatusCode.UNAVAILABLE)] * 200
    await advance_until(clock, lease.lost.is_set)
    owner.before = []
    await leases.release(lease)
    assert len(owner.asked_for(lease_pb2.ReleaseLeaseRequest)) == 1
