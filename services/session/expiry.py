"""Expiry of questions that nobody answered in time, by the database's clock."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from services.common.loops import Failures
from services.session.journal import SessionKey
from services.session.store.interactions import InteractionStore

_BATCH: Final = 100
# Other replicas store questions too, and tell nobody.
_LONGEST: Final = 1.0
_SHORTEST: Final = 0.01


class InteractionExpiry:
    """Every replica may do it: the session's lock decides who expires a question."""

    def __init__(self, store: InteractionStore, expired: Callable[[], None]) -> None:
        """`expired` is called when a decision waits to be delivered."""
        self._store = store
        self._expired = expired
        self._failures = Failures("expiring the questions of a session")

    async def step(self) -> float:
        """Expire what is overdue; returns the seconds until the next look."""
        due = await self._store.next_expiry()
        if due is None or due > 0:
            return _LONGEST if due is None else min(max(due, _SHORTEST), _LONGEST)
        expired = [await self._expire(key) for key in await self._store.overdue_sessions(_BATCH)]
        return 0.0 if all(expired) else _LONGEST

    async def _expire(self, key: SessionKey) -> bool:
        try:
            await self._store.expire(key)
        except Exception as error:  # noqa: BLE001 (logged; the next look finds it again)
            self._failures.report(error)
            return False
        self._failures.clear()
        self._expired()
        return True
