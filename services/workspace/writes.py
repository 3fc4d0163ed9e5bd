"""File writes in progress: who raises the token is told so when those below it are over (F5)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from services.workspace.exec.execs import SessionKey


@dataclass(slots=True, eq=False)
class Write:
    """One write, from before its token is judged until it can touch nothing any more."""

    session: SessionKey
    token: int
    over: asyncio.Event = field(default_factory=asyncio.Event)
    thread: asyncio.Future[None] | None = None


class Writes:
    """All of this instance. A thread cannot be stopped, so its end counts, not that of its caller."""

    def __init__(self) -> None:
        """Without any."""
        self._writes: set[Write] = set()

    @contextmanager
    def begun(self, session: SessionKey, token: int) -> Iterator[Write]:
        """A new one; `run` it in the block, or it is over at the block's end."""
        write = Write(session, token)
        self._writes.add(write)
        try:
            yield write
        finally:
            if write.thread is None:
                self._end(write)

    async def run(self, write: Write, work: Callable[[], None]) -> None:
        """Do the work in a thread."""
        write.thread = asyncio.get_running_loop().run_in_executor(None, work)
        write.thread.add_done_callback(lambda _: self._end(write))
        await asyncio.shield(write.thread)

    async def until_over(self, session: SessionKey, below: int) -> None:
        """Return when no write of the session with a lower token is left."""
        for write in [each for each in self._writes if each.session == session and each.token < below]:
            await write.over.wait()

    async def until_none(self) -> None:
        """Return when none is left."""
        for write in list(self._writes):
            await write.over.wait()

    def _end(self, write: Write) -> None:
        write.over.set()
        self._writes.discard(write)
