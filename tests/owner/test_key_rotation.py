"""Keys rotate under load: two owner processes agree, no renewal fails, every grant verifies until its end."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from datetime import UTC, datetime, timedelta

import grpc
import pytest
from moorage.common.v1.grant_pb2 import Grant
from moorage.owner.v1 import lease_pb2

from services.common.channels import open_channel
from services.common.clock import SystemClock
from services.fencing.grants import decode
from services.fencing.keys import KeyCache
from services.fencing.verifier import GrantVerifier
from tests.conditions import eventually
from tests.owner.processes import SERVING, owner_process
from tests.owner.replicas import Holder

TTL = 1.5
# A new key every 4 s, listed 0.3 s before it signs; the one before is dropped 3.5 s later.
SCHEDULE = ("--key-lifetime", "4", "--key-notice", "0.3", "--key-refresh", "0.05")
FLAGS = ("--listen", "127.0.0.1:0", "--default-ttl", "1.5", "--max-ttl", "1.5", *SCHEDULE)
KEYS = 3

Channels = list[grpc.aio.Channel]


@pytest.fixture
async def channels(database_url: str) -> AsyncIterator[Channels]:
    """To two owner processes on one database."""
    async with AsyncExitStack() as stack:
        processes = [
            await stack.enter_async_context(owner_process(*FLAGS, MOORAGE_DATABASE_URL=database_url))
            for _ in range(2)
        ]
        endpoints = [await process.until_serving() for process in processes]
        for process in processes:
            await process.until_health(SERVING)
        yield [await stack.enter_async_context(open_channel(endpoint)) for endpoint in endpoints]


class Renewer:
    """Holds a lease and renews it without a pause; verifiers with old and with new keys check each grant."""

    def __init__(self, number: int, channel: grpc.aio.Channel, caches: list[KeyCache]) -> None:
        self.kids: set[str] = set()
        self.checked_late = 0
        self._resource = f"r/{number}"
        self._holder = Holder(channel, f"holder-{number}/1")
        self._caches = caches
        self._verifiers = [GrantVerifier(cache, SystemClock()) for cache in caches]
        self._shown: deque[tuple[datetime, Grant]] = deque()

    async def run(self, stop: asyncio.Event) -> None:
        await self._holder.acquire(self._resource, TTL)
        while not stop.is_set():
            [result] = await self._holder.renew((self._resource, 1))
            assert result.state == lease_pb2.RENEWAL_STATE_RENEWED
            self.kids.add(result.grant.kid)
            for verifier in self._verifiers:
                await verifier.verify(result.grant, self._resource)
            self._shown.append((decode(result.grant.payload).expire_time, result.grant))
            await self._check_what_ends_soon()

    async def _check_what_ends_soon(self) -> None:
        """The keys that owner lists in the last moments of a grant still verify it."""
        soon = datetime.now(UTC) + timedelta(seconds=TTL / 4)
        grant = None
        while self._shown and self._shown[0][0] < soon:
            grant = self._shown.popleft()[1]
        if grant is not None:
            fresh = self._caches[self.checked_late % len(self._caches)]
            await fresh.refresh()
            await GrantVerifier(fresh, SystemClock()).verify(grant, self._resource)
            self.checked_late += 1


async def test_no_renewal_fails_and_no_grant_ends_early(channels: Channels) -> None:
    caches = [KeyCache(channel, SystemClock()) for channel in channels]
    for cache in caches:
        await cache.refresh()
    renewers = [Renewer(number, channels[number % 2], caches) for number in range(4)]
    stop, listed = asyncio.Event(), set[frozenset[str]]()
    async with asyncio.TaskGroup() as tasks:
        for renewer in renewers:
            tasks.create_task(renewer.run(stop))
        tasks.create_task(_watch(channels, listed, stop))
        await eventually(lambda: all(len(each.kids) >= KEYS for each in renewers), within=30)
        stop.set()
    # Replicas and their holders saw the same keys, one or two at any time.
    assert set[str]().union(*listed) >= set[str]().union(*(each.kids for each in renewers))
    assert {len(keys) for keys in listed} == {1, 2}
    assert all(each.checked_late > 0 for each in renewers)


async def _watch(channels: Channels, listed: set[frozenset[str]], stop: asyncio.Event) -> None:
    while not stop.is_set():
        for channel in channels:
            listed.add(frozenset(key.kid for key in await Holder(channel, "a/1").keys()))
