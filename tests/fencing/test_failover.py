"""The database goes over to its standby: owner follows without a restart, and no lease is lost."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from services.common.migrations import migrate
from services.fencing.leases import HeldLease
from services.fencing.loop import LeaseLoop
from tests.conditions import eventually
from tests.databases import fetch_value
from tests.fencing.running import holding, ready_owner
from tests.replication import Pair

RUNNER = {"role": "runner"}
# Longer than it takes to notice a host that hangs and to be answered by the other one.
TTL = 12.0


@pytest.fixture
async def pair(tmp_path: Path) -> AsyncIterator[Pair]:
    """A primary, migrated, and its synchronous standby."""
    both = Pair(tmp_path)
    try:
        await both.start()
        await migrate(both.url, "owner")
        yield both
    finally:
        both.remove()


async def test_a_dead_primary_is_followed_by_its_standby(pair: Pair) -> None:
    async with ready_owner(pair.url) as owner, holding(owner.endpoint) as leases:
        held = await _acquire_some(leases)
        pair.primary.kill()
        await pair.promote()
        await _assert_renewed(held)
        await _assert_tokens_go_on(leases, held[0])


async def test_a_primary_that_hangs_is_left_and_stays_left(pair: Pair) -> None:
    async with ready_owner(pair.url) as owner, holding(owner.endpoint) as leases:
        held = await _acquire_some(leases)
        pair.hang()
        await pair.promote()
        await _assert_renewed(held)
        pair.go_on()
        await _assert_renewed(held)
        await _assert_tokens_go_on(leases, held[0])
        # Whatever was under way at the old primary waits for a standby that it has not any more.
        await eventually(lambda: _is_behind(pair), what="the old primary has none of this")


async def _acquire_some(leases: LeaseLoop) -> list[HeldLease]:
    names = [f"r/{number}" for number in range(20)]
    return list(await asyncio.gather(*(leases.acquire(name, ttl=TTL, labels=RUNNER) for name in names)))


async def _assert_renewed(held: list[HeldLease]) -> None:
    """All of them, twice from now on: the second renewal was sent after this moment."""
    for _ in range(2):
        before = [lease.grant for lease in held]
        await eventually(
            lambda before=before: all(  # type: ignore[misc]
                lease.grant != grant for lease, grant in zip(held, before, strict=True)
            ),
            within=TTL,
            what="every lease is renewed",
        )
    assert all(lease.held and lease.token == 1 for lease in held)


async def _assert_tokens_go_on(leases: LeaseLoop, lease: HeldLease) -> None:
    await leases.release(lease)
    again = await leases.acquire(lease.resource, ttl=TTL, labels=RUNNER)
    assert again.token == lease.token + 1


async def _is_behind(pair: Pair) -> bool:
    query = "SELECT max(token) FROM owner.leases"
    return [await fetch_value(url, query) for url in (pair.primary.url, pair.standby_url)] == [1, 2]
