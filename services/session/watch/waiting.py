"""Waiting for a sign or a time, whichever comes first."""

from __future__ import annotations

import asyncio
from typing import Final

from services.common.clock import Clock

# What is left of a call's deadline to answer it.
_ANSWER_MARGIN: Final = 0.5
_LONGEST_WAIT: Final = 15 * 60.0


def waiting_time(remaining: float | None) -> float:
    """Seconds that a call may wait whose caller waits for `remaining` ones, None without a bound."""
    if remaining is None:
        return _LONGEST_WAIT
    return min(remaining - _ANSWER_MARGIN, _LONGEST_WAIT)


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
        waiter = self._waiter = asyncio.get_running_loop().create_future()
        timer = asyncio.ensure_future(self._clock.sleep(seconds))
        # It ends after this wait when the bell rings first, and must not end the next one.
        timer.add_done_callback(lambda _: _settle(waiter))
        try:
            await waiter
        finally:
            self._waiter = None
            timer.cancel()

    def _wake(self) -> None:
        if self._waiter is not None:
            _settle(self._waiter)


def _settle(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)
