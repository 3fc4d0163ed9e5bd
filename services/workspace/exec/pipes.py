"""Non-blocking ends of pipes and terminals: reading and writing without buffers of our own."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from typing import Any, Final

CHUNK: Final = 64 * 1024


class End:
    """One end of a pipe, or the controlling side of a terminal. Use it from one task at a time."""

    def __init__(self, fd: int) -> None:
        """Own the descriptor."""
        os.set_blocking(fd, False)
        self.fd = fd
        self.closed = False

    def close(self) -> None:
        """Close it. Idempotent. Nobody may be waiting on it."""
        if not self.closed:
            self.closed = True
            os.close(self.fd)


class PipeReader(End):
    """Where output comes out."""

    def read_now(self, *, nobody_writes: bool) -> bytes | None:
        """See ReadEnd. What nobody writes to any more is at its end when it is empty, whoever has it open."""
        try:
            return os.read(self.fd, CHUNK)
        except BlockingIOError:
            return b"" if nobody_writes else None
        except OSError:
            # EIO is how a terminal says that nobody has its other side open any more.
            return b""

    async def wait(self, other: asyncio.Future[Any]) -> None:
        """Until there is something to read, or the end, or `other` is done."""
        event = asyncio.Event()
        wake = _waker(event)
        loop = asyncio.get_running_loop()
        loop.add_reader(self.fd, event.set)
        other.add_done_callback(wake)
        try:
            await event.wait()
        finally:
            other.remove_done_callback(wake)
            loop.remove_reader(self.fd)


class PipeWriter(End):
    """Where input goes in."""

    def write_now(self, data: memoryview) -> int:
        """How many bytes went in; 0 when it is full. OSError when nobody reads any more."""
        try:
            return os.write(self.fd, data)
        except BlockingIOError:
            return 0

    async def wait(self) -> None:
        """Until there is room, or nobody reads."""
        event = asyncio.Event()
        loop = asyncio.get_running_loop()
        loop.add_writer(self.fd, event.set)
        try:
            await event.wait()
        finally:
            loop.remove_writer(self.fd)


def _waker(event: asyncio.Event) -> Callable[[object], None]:
    def wake(_: object) -> None:
        event.set()

    return wake
