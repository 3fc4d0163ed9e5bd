"""A takeover that meets another, a renewal, a release, a repeated acquisition, on two replicas."""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import grpc
import pytest
from moorage.owner.v1 import lease_pb2

from services.common.errors import MoorageError
from tests.owner.replicas import Holder, replica
from tests.races.meeting import meet

ROUNDS = int(os.environ.get("RACES", "30"))
RENEWED, STALE = lease_pb2.RENEWAL_STATE_RENEWED, lease_pb2.RENEWAL_STATE_STALE

Channels = list[grpc.aio.Channel]
Outcome = lease_pb2.AcquireLeaseResponse | str


@pytest.fixture
async def channels(database_url: str) -> AsyncIterator[Channels]:
    """To two replicas on one database."""
    async with AsyncExitStack() as stack:
        yield [await stack.enter_async_context(replica(database_url)) for _ in range(2)]


@pytest.fixture
def alice(channels: Channels) -> Holder:
    """Holds the lease that is taken over."""
    return Holder(channels[0], "alice/1")


@pytest.fixture
def taker(channels: Channels) -> Holder:
    """Calls the other replica."""
    return Holder(channels[1], "taker/1")


async def test_of_those_who_name_the_same_token_one_wins(channels: Channels, alice: Holder) -> None:
    takers = [Holder(channels[number % 2], f"taker-{number}/1") for number in range(10)]
    for round_number in range(ROUNDS):
        resource = f"r/{round_number}"
        held = (await alice.acquire(resource)).lease
        outcomes = await asyncio.gather(*(_take_over(taker, resource) for taker in takers))
        [taken] = [outcome for outcome in outcomes if not isinstance(outcome, str)]
        assert [outcome for outcome in outcomes if isinstance(outcome, str)] == ["LEASE_STALE"] * 9
        assert (taken.lease.token, taken.replaced_expire_time) == (2, held.expire_time)
        assert await alice.get(resource) == taken.lease


async def test_a_renewal_comes_before_it_or_is_stale(alice: Holder, taker: Holder) -> None:
    seen: Counter[int] = Counter()
    for number in range(ROUNDS):
        resource = f"r/{number}"
        held = (await alice.acquire(resource)).lease
        [result], taken = await meet(alice.renew((resource, 1)), taker.take_over(resource, 1), number)
        seen[result.state] += 1
        # The taker knows until when the newest grant of the other goes.
        known = result.expire_time if result.state == RENEWED else held.expire_time
        assert (taken.lease.token, taken.replaced_expire_time) == (2, known)
        assert await alice.get(resource) == taken.lease
    assert seen.keys() == {RENEWED, STALE}, seen


async def test_a_release_comes_before_it_or_is_stale(alice: Holder, taker: Holder) -> None:
    seen: Counter[str] = Counter()
    for number in range(ROUNDS):
        resource = f"r/{number}"
        held = (await alice.acquire(resource)).lease
        released, taken = await meet(_release(alice, resource), taker.take_over(resource, 1), number)
        ended = held.expire_time if isinstance(released, str) else released.expire_time
        seen[released if isinstance(released, str) else "RELEASED"] += 1
        assert (taken.lease.token, taken.replaced_expire_time) == (2, ended)
        assert await alice.get(resource) == taken.lease
    assert seen.keys() == {"RELEASED", "LEASE_STALE"}, seen


async def test_a_repeated_acquisition_finds_its_lease_or_is_stale(alice: Holder, taker: Holder) -> None:
    seen: Counter[str] = Counter()
    for number in range(ROUNDS):
        resource = f"r/{number}"
        first = await alice.acquire(resource, request_id=f"id-{number}")
        again, taken = await meet(
            _acquire(alice, resource, f"id-{number}"),
            taker.take_over(resource, 1),
            number,
        )
        seen[again if isinstance(again, str) else "FOUND"] += 1
        assert again in (first, "LEASE_STALE")
        assert await alice.get(resource) == taken.lease
    assert seen.keys() == {"FOUND", "LEASE_STALE"}, seen


async def test_whoever_acquires_an_ended_lease_at_the_same_time_is_refused_or_refuses(
    alice: Holder, taker: Holder
) -> None:
    seen: Counter[str] = Counter()
    for number in range(ROUNDS):
        resource = f"r/{number}"
        await alice.acquire(resource)
        await alice.release(resource, 1)
        acquired, taken = await meet(_acquire(alice, resource, ""), _take_over(taker, resource), number)
        [winner] = [outcome for outcome in (acquired, taken) if not isinstance(outcome, str)]
        [refused] = [outcome for outcome in (acquired, taken) if isinstance(outcome, str)]
        assert refused == ("LEASE_STALE" if refused is taken else "LEASE_HELD")
        seen[refused] += 1
        assert (await alice.get(resource), winner.lease.token) == (winner.lease, 2)
    assert seen.keys() == {"LEASE_STALE", "LEASE_HELD"}, seen


async def _take_over(taker: Holder, resource: str) -> Outcome:
    try:
        return await taker.take_over(resource, 1)
    except MoorageError as error:
        return error.reason_name


async def _acquire(holder: Holder, resource: str, request_id: str) -> Outcome:
    try:
        return await holder.acquire(resource, request_id=request_id)
    except MoorageError as error:
        return error.reason_name


async def _release(holder: Holder, resource: str) -> lease_pb2.Lease | str:
    try:
        return await holder.release(resource, 1)
    except MoorageError as error:
        return error.reason_name
