"""Watches of a replica, as tests run and read them."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from typing import Any, Self

from services.common.clock import Clock, SystemClock
from services.common.database import Database
from services.session.records import Record
from services.session.store.records import RecordStore
from services.session.store.turns import TurnStore
from services.session.store.watch import WatchStore
from services.session.watch.watching import Watching

NEVER = 3600.0


@contextlib.asynccontextmanager
async def running(
    database: Database, *, clock: Clock | None = None, heartbeat: float = NEVER, poll: float = NEVER
) -> AsyncIterator[Watching]:
    """The watches of one replica, which by default has nothing but hints."""
    watching = Watching(
        RecordStore(database),
        TurnStore(database),
        WatchStore(database),
        clock or SystemClock(),
        heartbeat=heartbeat,
        poll=poll,
    )
    loop = asyncio.create_task(watching.run())
    try:
        yield watching
    finally:
        loop.cancel()
        await asyncio.wait({loop})


class Watcher:
    """A watch under way: a task reads it, `seen` are its items."""

    def __init__(self, events: AsyncGenerator[Any, None]) -> None:
        self.seen: list[Any] = []
        self._events = events
        self.task = asyncio.create_task(self._read())

    async def _read(self) -> None:
        async with contextlib.aclosing(self._events) as events:
            async for event in events:
                self.seen.append(event)

    @property
    def seqs(self) -> list[int]:
        """The seqs of the records seen."""
        return [event.seq for event in self.seen if isinstance(event, Record)]

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.task.cancel()
        await asyncio.wait({self.task})


async def take(events: AsyncGenerator[Any, None], until: Callable[[list[Any]], bool]) -> list[Any]:
    """The items up to the one with which the condition holds; the watch is closed then."""
    seen: list[Any] = []
    async with contextlib.aclosing(events):
        async for event in events:
            seen.append(event)
            if until(seen):
                return seen
    return seen
