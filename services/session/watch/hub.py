"""Wakes watchers: at once for this process's writes, by hints for others', by polling for the rest (R5).

A watcher is only woken and reads from the database at its own pace, so that a slow one
holds no memory and blocks nobody.
"""

from __future__ import annotations

import asyncio
import json
import secrets
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Final

from services.common.clock import Clock
from services.common.loops import forever
from services.session.journal.rules import SessionKey
from services.session.store.watch import WatchStore
from services.session.watch.waiting import Bell

# A NOTIFY takes a lock that all committers share: so many seconds between two.
_THROTTLE: Final = 0.02
# PostgreSQL takes less than 8,000 bytes.
_MAX_HINT: Final = 7_500
_LEAVING: Final = 2.0


class Subscription:
    """Wakes one watcher of one session."""

    def __init__(self, clock: Clock) -> None:
        """Begin without having seen anything."""
        self.bell = Bell(clock)
        self.seen = 0

    def grown(self, head_seq: int) -> None:
        """There is something that the watcher has not seen."""
        if head_seq > self.seen:
            self.bell.ring()


class Hub:
    """All watchers of this process."""

    def __init__(self, store: WatchStore, clock: Clock, *, poll: float) -> None:
        """`poll`: seconds between looks for records that nobody told of."""
        self._store = store
        self._clock = clock
        self._poll = poll
        self._name = secrets.token_hex(8)
        self._watched: dict[SessionKey, set[Subscription]] = {}
        self._untold: set[SessionKey] = set()
        self._to_tell = Bell(clock)
        self._to_look = Bell(clock)
        self._left = asyncio.Event()
        self.closed = False

    @contextmanager
    def subscribe(self, key: SessionKey) -> Iterator[Subscription]:
        """Be woken while open."""
        subscription = Subscription(self._clock)
        self._watched.setdefault(key, set()).add(subscription)
        try:
            yield subscription
        finally:
            self._watched[key].discard(subscription)
            if not self._watched[key]:
                del self._watched[key]
            self._left.set()

    def changed(self, key: SessionKey) -> None:
        """This process has committed records of a session."""
        self._wake(key)
        self._untold.add(key)
        self._to_tell.ring()

    async def run(self) -> None:
        """Hear, look and tell until cancelled."""
        async with self._store.hear(self._heard), asyncio.TaskGroup() as tasks:
            tasks.create_task(self._forever("looking for new records", self._look))
            tasks.create_task(self._forever("telling of new records", self._tell))

    async def _forever(self, name: str, step: Callable[[], Awaitable[float | None]]) -> None:
        await forever(name, step, clock=self._clock, longest_delay=self._poll)

    async def close(self) -> None:
        """Wake all watchers so that they leave, and wait for them, shortly."""
        self.closed = True
        for key in list(self._watched):
            self._wake(key)
        try:
            async with asyncio.timeout(_LEAVING):
                while self._watched:
                    self._left.clear()
                    await self._left.wait()
        except TimeoutError:
            # Their clients do not read; the server cuts them.
            return

    def _wake(self, key: SessionKey) -> None:
        for subscription in self._watched.get(key, ()):
            subscription.bell.ring()

    def _heard(self, hint: str) -> None:
        sender, keys = _read_hint(hint)
        if sender == self._name:
            return
        for key in keys:
            self._wake(key)
        if not keys:
            self._to_look.ring()

    async def _look(self) -> float | None:
        await self._to_look.wait(self._poll)
        heads = await self._store.heads(list(self._watched)) if self._watched else {}
        for key, subscriptions in self._watched.items():
            for subscription in subscriptions:
                # One that is not told of may be deleted: its watchers shall see.
                subscription.grown(heads.get(key, subscription.seen + 1))
        return None

    async def _tell(self) -> float | None:
        await self._to_tell.wait(self._poll)
        if not self._untold:
            return None
        keys, self._untold = self._untold, set()
        await self._store.tell(self._hint(keys))
        return _THROTTLE

    def _hint(self, keys: set[SessionKey]) -> str:
        """Which sessions have changed; without names when there are too many: look for yourself."""
        hint = json.dumps([self._name, *sorted(keys)], separators=(",", ":"))
        return hint if len(hint) <= _MAX_HINT else json.dumps([self._name])


def _read_hint(hint: str) -> tuple[str, list[SessionKey]]:
    """Who sent it, and about which sessions; what cannot be read says nothing but that something is new."""
    try:
        sender, *keys = json.loads(hint)
        return sender, [SessionKey(project, session_id) for project, session_id in keys]
    except (ValueError, TypeError):
        return "", []
