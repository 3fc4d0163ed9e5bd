"""Taking over: what the loop asks for, what it is told, and what it never does later by itself."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import grpc
import pytest
from moorage.owner.v1 import lease_pb2

from services.common.clock import ManualClock
from services.common.errors import DependencyUnavailable
from services.fencing.errors import LeaseStale
from services.fencing.loop import LeaseLoop
from tests.fencing.scripted import START, ScriptedOwner, failing
from tests.fencing.timing import advance_until

SERVICE = {"role": "service"}


async def test_it_names_the_token_and_hears_until_when_the_other_may_act(
    owner: ScriptedOwner, leases: LeaseLoop
) -> None:
    owner.token = 6
    lease = await leases.acquire("a", ttl=5, labels=SERVICE, takeover_token=6)
    [asked] = owner.asked_for(lease_pb2.AcquireLeaseRequest)
    assert (asked.takeover_token, lease.token, lease.held) == (6, 7, True)
    assert lease.replaced_expire_time == START + timedelta(seconds=30)


async def test_without_a_takeover_there_is_no_such_time(owner: ScriptedOwner, leases: LeaseLoop) -> None:
    lease = await leases.acquire("a", ttl=5, labels=SERVICE)
    [asked] = owner.asked_for(lease_pb2.AcquireLeaseRequest)
    assert (asked.takeover_token, lease.replaced_expire_time) == (0, None)


async def test_another_token_is_refused_as_stale(owner: ScriptedOwner, leases: LeaseLoop) -> None:
    owner.token = 7
    with pytest.raises(LeaseStale) as caught:
        await leases.acquire("a", ttl=5, labels=SERVICE, takeover_token=6)
    assert (caught.value.reason_name, caught.value.metadata["token"]) == ("LEASE_STALE", "6")
    assert not leases.leases


async def test_a_takeover_that_was_given_up_is_neither_repeated_nor_given_back(
    owner: ScriptedOwner, leases: LeaseLoop, clock: ManualClock
) -> None:
    """By then nobody may want it; and giving it back would open the way past its fence."""
    owner.token = 6
    owner.before = [failing(grpc.StatusCode.UNAVAILABLE)] * 20
    acquiring = asyncio.ensure_future(leases.acquire("a", ttl=5, labels=SERVICE, takeover_token=6))
    await advance_until(clock, acquiring.done)
    with pytest.raises(DependencyUnavailable):
        await acquiring
    owner.before, owner.asked = [], []
    await clock.advance(10)
    # A plain one that is given up is settled at once, so whatever would be settled has been.
    owner.after = [failing(grpc.StatusCode.UNAVAILABLE)]
    with pytest.raises(DependencyUnavailable):
        await leases.acquire("b", ttl=5, labels=SERVICE, timeout=0)
    await advance_until(clock, lambda: bool(owner.asked_for(lease_pb2.ReleaseLeaseRequest)))
    assert {request.resource for request in owner.asked} == {"b"}
    lease = await leases.acquire("a", ttl=5, labels=SERVICE, takeover_token=owner.token)
    assert len(owner.asked_for(lease_pb2.AcquireLeaseRequest)) == 3
    assert lease.held


async def test_a_lease_that_is_left_is_not_renewed_and_not_given_back(
    owner: ScriptedOwner, leases: LeaseLoop, clock: ManualClock
) -> None:
    left = await leases.acquire("a", ttl=15, labels=SERVICE)
    await leases.acquire("b", ttl=15, labels=SERVICE)
    leases.leave(left)
    assert (left.held, left.lost.is_set(), set(leases.leases)) == (False, False, {"b"})
    await advance_until(clock, lambda: len(owner.renewals) == 2)
    assert owner.renewals == [["b"], ["b"]]
    assert owner.asked_for(lease_pb2.ReleaseLeaseRequest) == []
