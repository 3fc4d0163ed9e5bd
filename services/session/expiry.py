"""Expiry, by the database's clock: questions that nobody answered, turns that waited for too long."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Final, Protocol

from services.common.loops import Failures
from services.session.journal.rules import SessionKey
from services.session.store.interactions import InteractionStore
from services.session.store.queue import QueueStore

_BATCH: Final = 100
# Other replicas store rows too, and tell nobody.
_LONGEST: Final = 1.0
_SHORTEST: Final = 0.01


class _Expiring(Protocol):
    """Rows that expire, by their sessions."""

    async def next_expiry(self) -> float | None: ...

    async def overdue_sessions(self, limit: int) -> Sequence[SessionKey]: ...


class _Expiry:
    """Every replica may do it: the session's lock decides who expires what."""

    def __init__(self, name: str, rows: _Expiring, expire: Callable[[SessionKey], Awaitable[None]]) -> None:
        self._rows = rows
        self._expire_session = expire
        self._failures = Failures(name)

    async def step(self) -> float:
        """Expire what is overdue; returns the seconds until the next look."""
        due = await self._rows.next_expiry()
        if due is None or due > 0:
            return _LONGEST if due is None else min(max(due, _SHORTEST), _LONGEST)
        expired = [await self._expire(key) for key in await self._rows.overdue_sessions(_BATCH)]
        return 0.0 if all(expired) else _LONGEST

    async def _expire(self, key: SessionKey) -> bool:
        try:
            await self._expire_session(key)
        except Exception as error:  # noqa: BLE001 (logged; the next look finds it again)
            self._failures.report(error)
            return False
        self._failures.clear()
        return True


class InteractionExpiry(_Expiry):
    """Questions that nobody answered in time."""

    def __init__(self, store: InteractionStore, expired: Callable[[], None]) -> None:
        """`expired` is called when a decision waits to be delivered."""

        async def expire(key: SessionKey) -> None:
            await store.expire(key)
            expired()

        super().__init__("expiring the questions of a session", store, expire)


class QueueExpiry(_Expiry):
    """Turns that waited in the queue for too long."""

    def __init__(self, store: QueueStore) -> None:
        """The queues."""
        super().__init__("expiring the queue of a session", store, store.expire)
