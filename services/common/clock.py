"""Time as services see it: a clock that counts suspended time, and one that tests turn by hand."""

from __future__ import annotations

import asyncio
import heapq
import itertools
import time
from datetime import UTC, datetime, timedelta
from typing import Final, Protocol

_BOOTTIME: Final = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
# The event loop's own timers stand still while the machine is suspended.
_LONGEST_NAP: Final = 1.0
_PASSES: Final = 20
_START: Final = datetime(2024, 1, 1, tzinfo=UTC)


class Clock(Protocol):
    """What a component that waits or measures takes as an argument."""

    def boottime(self) -> float:
        """Seconds on CLOCK_BOOTTIME: never set back, and running while the machine is suspended."""
        ...

    def now(self) -> datetime:
        """The wall clock, in UTC and aware. Never used to judge a lease."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Wait on boottime; zero or less only yields."""
        ...


class SystemClock:
    """The machine's clocks."""

    def boottime(self) -> float:
        """See Clock."""
        return time.clock_gettime(_BOOTTIME)

    def now(self) -> datetime:
        """See Clock."""
        return datetime.now(UTC)

    async def sleep(self, seconds: float) -> None:
        """See Clock; after a suspension it returns within a second."""
        deadline = self.boottime() + seconds
        while (left := deadline - self.boottime()) > 0:
            await asyncio.sleep(min(left, _LONGEST_NAP))
        await asyncio.sleep(0)


class ManualClock:
    """A clock that stands still until a test advances it."""

    def __init__(self, boottime: float = 1000.0, now: datetime = _START) -> None:
        """Start at these times."""
        self._boottime = boottime
        self._now = now
        self._order = itertools.count()
        self._timers: list[tuple[float, int, asyncio.Future[None]]] = []
        self._registered = asyncio.Event()

    def boottime(self) -> float:
        """See Clock."""
        return self._boottime

    def now(self) -> datetime:
        """See Clock."""
        return self._now

    @property
    def sleepers(self) -> int:
        """How many tasks sleep on this clock."""
        return sum(not timer.done() for _, _, timer in self._timers)

    async def sleep(self, seconds: float) -> None:
        """See Clock: returns when the clock was advanced that far."""
        if seconds <= 0:
            await asyncio.sleep(0)
            return
        timer = asyncio.get_running_loop().create_future()
        heapq.heappush(self._timers, (self._boottime + seconds, next(self._order), timer))
        self._registered.set()
        await timer

    async def until_sleeping(self, count: int = 1) -> None:
        """Wait until this many tasks sleep: what an advance is meant for has begun to wait."""
        while self.sleepers < count:
            self._registered.clear()
            await self._registered.wait()

    async def advance(self, seconds: float) -> None:
        """Move on, in the order of the timers; whoever wakes up has run before this returns."""
        deadline = self._boottime + seconds
        await self._settle()
        while self._timers and self._timers[0][0] <= deadline:
            due, _, timer = heapq.heappop(self._timers)
            self._move_to(due)
            if not timer.done():
                timer.set_result(None)
                await self._settle()
        self._move_to(deadline)

    def _move_to(self, boottime: float) -> None:
        self._now += timedelta(seconds=boottime - self._boottime)
        self._boottime = boottime

    async def _settle(self) -> None:
        for _ in range(_PASSES):
            await asyncio.sleep(0)
