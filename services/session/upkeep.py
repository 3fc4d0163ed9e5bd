"""What the session service does by itself besides dispatch and watchdog: forgetting old request ids."""

from __future__ import annotations

from datetime import timedelta
from typing import Final

from services.session.store.requests import RequestStore

_PAUSE: Final = 600.0


class RequestUpkeep:
    """Forgets request ids that are old enough; every replica does it, the database shares the work."""

    def __init__(self, store: RequestStore, retention: float) -> None:
        """`retention` in seconds."""
        self._store = store
        self._retention = timedelta(seconds=retention)

    async def step(self) -> float:
        """Forget some; returns the seconds until the next look, 0 when more may be left."""
        more = await self._store.purge(self._retention)
        return 0.0 if more else _PAUSE
