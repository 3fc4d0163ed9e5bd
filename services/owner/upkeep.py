"""What the owner service does by itself: agreeing on keys, forgetting old request ids.

Every replica does both; the database lets them share the work.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Final

from services.owner.config import OwnerSettings
from services.owner.keys import KeyRing, NewKey
from services.owner.store.keys import KeyStore
from services.owner.store.leases import LeaseStore

_PURGED_AT_ONCE: Final = 1000


class KeyUpkeep:
    """Keeps the key ring on the stored key that signs, and stores one when there is none or all are old."""

    def __init__(self, store: KeyStore, ring: KeyRing, settings: OwnerSettings) -> None:
        """The ring is loaded from the store."""
        self._store = store
        self._ring = ring
        self._interval = settings.key_refresh

    async def ensure(self) -> None:
        """Load the ring if it is empty; raises when the database is out of reach."""
        if self._ring.is_empty:
            await self._refresh()

    async def step(self) -> float:
        """One look at the stored keys; returns the seconds until the next."""
        await self._refresh()
        return self._interval

    async def _refresh(self) -> None:
        self._ring.load(await self._store.agree_on_keys(NewKey.mint()))


class RequestUpkeep:
    """Forgets request ids that are old enough."""

    def __init__(self, store: LeaseStore, settings: OwnerSettings) -> None:
        """The store holds the request ids."""
        self._store = store
        self._retention = timedelta(seconds=settings.request_id_retention)
        self._interval = settings.purge_interval

    async def step(self) -> float:
        """Forget some; returns the seconds until the next look, 0 when more may be left."""
        purged = await self._store.purge_requests(self._retention, _PURGED_AT_ONCE)
        return 0.0 if purged == _PURGED_AT_ONCE else self._interval
