"""What the session service does by itself besides its outboxes and the watchdog: forgetting."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Final

_PAUSE: Final = 600.0


class Upkeep:
    """Forgets rows that are old enough; every replica does it, the database shares the work."""

    def __init__(self, purge: Callable[[timedelta], Awaitable[bool]], retention: float) -> None:
        """`purge` forgets some of those older than `retention` seconds; whether there may be more."""
        self._purge = purge
        self._retention = timedelta(seconds=retention)

    async def step(self) -> float:
        """Forget some; returns the seconds until the next look, 0 when more may be left."""
        more = await self._purge(self._retention)
        return 0.0 if more else _PAUSE
