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
from tests.conditions import eventually
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


async def test_what_a_given_up_takeover_got_is_given_back(
    owner: ScriptedOwner, leases: LeaseLoop, clock: ManualClock
) -> None:
    owner.token = 6
    owner.after = [failing(grpc.StatusCode.UNAVAILABLE)] * 20
    with pytest.raises(DependencyUnavailable):
        await _given_up(leases, clock)
    owner.after = []
    await advance_until(clock, lambda: bool(owner.asked_for(lease_pb2.ReleaseLeaseRequest)))
    [released] = owner.asked_for(lease_pb2.ReleaseLeaseRequest)
    assert (released.resource, released.token, owner.token) == ("a", 7, 7)


async def test_a_given_up_takeover_that_got_nothing_is_not_made_up_for(
    owner: ScriptedOwner, leases: LeaseLoop, clock: ManualClock
) -> None:
    """By then nobody may want it: the holder may have come to its senses."""
    owner.token = 6
    owner.before = [failing(grpc.StatusCode.UNAVAILABLE)] * 20
    with pytest.raises(DependencyUnavailable):
        await _given_up(leases, clock)
    owner.before = []
    asked = len(owner.asked)
    await advance_until(clock, lambda: len(owner.asked) > asked)
    # A new one for the same resource settles what is left of the old one first.
    lease = await leases.acquire("a", ttl=5, labels=SERVICE, takeover_token=6)
    assert (lease.token, owner.token) == (7, 7)
    await eventually(lambda: len(owner.granted) == 1)
    assert owner.asked_for(lease_pb2.ReleaseLeaseRequest) == []


async def _given_up(leases: LeaseLoop, clock: ManualClock) -> None:
    acquiring = asyncio.ensure_future(leases.acquire("a", ttl=5, labels=SERVICE, takeover_token=6))
    await advance_until(clock, acquiring.done)
    await acquiring
