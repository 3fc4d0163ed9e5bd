"""Waiting for a boot time that may be moved meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from services.common.clock import Clock


class Alarm:
    """One task waits; others say that the time it waits for has changed."""

    def __init__(self, clock: Clock) -> None:
        """Times are of this clock."""
        self._clock = clock
        self._moved = asyncio.Event()

    def move(self) -> None:
        """Make the waiting task ask for its time again."""
        self._moved.set()

    async def wait(self, due: Callable[[], float]) -> None:
        """Return when the boot time `due()` has come; it may be infinite."""
        while (left := due() - self._clock.boottime()) > 0:
            self._moved.clear()
            await self._nap(left)

    async def _nap(self, seconds: float) -> None:
        waits: list[asyncio.Future[object]] = [asyncio.ensure_future(self._moved.wait())]
        if seconds != float("inf"):
            waits.append(asyncio.ensure_future(self._clock.sleep(seconds)))
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()
            await asyncio.gather(*waits, return_exceptions=True)
