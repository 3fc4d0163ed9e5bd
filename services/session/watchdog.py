"""The watchdog (F8): ends the turns of holders that are gone, with a token like anybody else's."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from datetime import UTC
from typing import Final

from moorage.owner.v1.lease_pb2 import Lease

from services.common.clock import Clock
from services.common.loops import Failures, forever
from services.fencing.errors import LeaseHeld
from services.fencing.loop import LeaseLoop
from services.session.clients import Leases
from services.session.journal import SessionKey
from services.session.store.dispatch import DispatchStore
from services.session.store.journal import JournalStore

_SESSIONS: Final = "projects/"
_LABELS: Final = {"role": "service"}
_CONCURRENT: Final = 16
_SHORTEST: Final = 0.1


class Watchdog:
    """Any number of replicas may run it: whoever gets the lease ends the turn."""

    def __init__(
        self,
        store: DispatchStore,
        journal: JournalStore,
        leases: Leases,
        loop: LeaseLoop,
        clock: Clock,
        *,
        lease_ttl: float,
        interval: float,
    ) -> None:
        """`loop` must run; `lease_ttl` and `interval` in seconds, the latter the longest between looks."""
        self._store = store
        self._journal = journal
        self._leases = leases
        self._loop = loop
        self._clock = clock
        self._lease_ttl = lease_ttl
        self._interval = interval
        self._failures = Failures("ending a turn whose holder is gone")
        self._room = asyncio.Semaphore(_CONCURRENT)

    async def run(self) -> None:
        """Watch until cancelled."""
        step = self._step
        await forever("watching for lost turns", step, clock=self._clock, longest_delay=self._interval)

    async def _step(self) -> float:
        # Turns before leases: a turn begun in between is not in the list, its lease may be.
        begun = {turn.key for turn in await self._store.begun_turns()}
        if not begun:
            return self._interval
        live = {lease.resource: lease for lease in await self._leases.list_live(_SESSIONS)}
        async with asyncio.TaskGroup() as tasks:
            for key in begun:
                if key.resource not in live:
                    tasks.create_task(self._recover(key))
        return self._until_next([live[key.resource] for key in begun if key.resource in live])

    async def _recover(self, key: SessionKey) -> None:
        async with self._room:
            try:
                await self._end_lost(key)
            except Exception as error:  # noqa: BLE001 (logged; the next look finds the turn again)
                self._failures.report(error)
            else:
                self._failures.clear()

    async def _end_lost(self, key: SessionKey) -> None:
        try:
            lease = await self._loop.acquire(key.resource, ttl=self._lease_ttl, labels=_LABELS)
        except LeaseHeld:
            # Its holder is back, a new one has it, or another replica is at it.
            return
        try:
            await self._journal.show(key, lease.grant)
        finally:
            await self._loop.release(lease)

    def _until_next(self, leases: Iterable[Lease]) -> float:
        """Seconds until the first of these leases could end, by our clock; at most the interval."""
        now = self._clock.now()
        left = ((lease.expire_time.ToDatetime(tzinfo=UTC) - now).total_seconds() for lease in leases)
        return min(max(min(left, default=self._interval), _SHORTEST), self._interval)
