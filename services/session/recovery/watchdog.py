"""The watchdog (F8): ends the turns of holders that are gone, with a token like anybody else's."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from datetime import UTC
from functools import partial
from typing import Final

from moorage.owner.v1.lease_pb2 import Lease

from services.common.clock import Clock
from services.common.loops import forever
from services.session.clients import Leases
from services.session.recovery.once import OncePerKey
from services.session.recovery.taking import Taker
from services.session.recovery.targets import BegunTurn
from services.session.store.dispatch import DispatchStore
from services.session.turns import EndReason

_SESSIONS: Final = "projects/"
_OPERATOR: Final = "operator"
_SHORTEST: Final = 0.1


class Watchdog:
    """Any number of replicas may run it: whoever gets the lease ends the turn."""

    def __init__(
        self, store: DispatchStore, leases: Leases, taker: Taker, clock: Clock, *, interval: float
    ) -> None:
        """`interval`: the longest between looks, in seconds."""
        self._store = store
        self._leases = leases
        self._taker = taker
        self._clock = clock
        self._interval = interval
        self.work: Final = OncePerKey("ending a turn whose holder is gone")

    async def run(self) -> None:
        """Watch until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            step = partial(self._step, tasks)
            await forever("watching for lost turns", step, clock=self._clock, longest_delay=self._interval)

    async def _step(self, tasks: asyncio.TaskGroup) -> float:
        # Turns before leases: a turn begun in between is not in the list, its lease may be.
        begun = await self._store.begun_turns()
        if not begun:
            return self._interval
        live = {lease.resource: lease for lease in await self._leases.list_live(_SESSIONS)}
        for turn in begun:
            if turn.key.resource not in live:
                self.work.start(tasks, turn.key, self._end_lost(turn))
        return self._until_next(live[turn.key.resource] for turn in begun if turn.key.resource in live)

    async def _end_lost(self, turn: BegunTurn) -> None:
        """Somebody else has it when the holder is back, a new one is there, or another replica is at it."""
        await self._taker.take(turn, await self._reason(turn), name="watchdog")

    async def _reason(self, turn: BegunTurn) -> EndReason:
        """Why the holder is gone: an operator who got no further took its lease, or it just stopped renewing."""
        last = await self._leases.get(turn.key.resource)
        by_operator = last is not None and last.labels.get("role") == _OPERATOR
        return EndReason.TAKEN_OVER if by_operator else EndReason.LEASE_LOST

    def _until_next(self, leases: Iterable[Lease]) -> float:
        """Seconds until the first of these leases could end, by our clock; at most the interval."""
        now = self._clock.now()
        left = ((lease.expire_time.ToDatetime(tzinfo=UTC) - now).total_seconds() for lease in leases)
        return min(max(min(left, default=self._interval), _SHORTEST), self._interval)
