"""Waiting for a sign or a time, whichever comes first."""

from __future__ import annotations

import asyncio

from services.common.clock import Clock


class Bell:
    """Rings for one task that waits; rung before, it is heard by the next wait."""

    def __init__(self, clock: Clock) -> None:
        """The clock measures how long a wait lasts."""
        self._clock = clock
        self._rung = False
        self._waiter: asyncio.Future[None] | None = None

    def ring(self) -> None:
        """End the wait, or the next one."""
        self._rung = True
        self._wake()

    async def wait(self, seconds: float) -> bool:
        """Whether it rang; False after `seconds`."""
        if not self._rung:
            await self._until_woken(seconds)
        rung, self._rung = self._rung, False
        return rung

    async def _until_woken(self, seconds: float) -> None:
        self._waiter = asyncio.get_running_loop().create_future()
        timer = asyncio.ensure_future(self._clock.sleep(seconds))
        timer.add_done_callback(lambda _: self._wake())
        try:
            await self._waiter
        finally:
            self._waiter = None
            timer.cancel()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
