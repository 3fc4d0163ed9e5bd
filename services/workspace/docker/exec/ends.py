"""The instance's ends of a command's streams in a container: bounded by windows, fed by frames."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any, Final

from services.workspace.docker.exec import frames


class OutputEnd:
    """See ReadEnd. What came waits here until it is read; `taken` is told of each piece that was."""

    def __init__(self, taken: Callable[[int], None], closed: Callable[[], None]) -> None:
        """Nothing came yet."""
        self._pieces: deque[bytearray] = deque()
        self._taken = taken
        self._on_closed = closed
        self._finished = False
        self._closed = False
        self._changed = asyncio.Event()

    def feed(self, data: bytes) -> None:
        """A piece came."""
        if self._closed:
            return
        if self._pieces and len(self._pieces[-1]) + len(data) <= frames.LONGEST_PIECE:
            self._pieces[-1] += data
        else:
            self._pieces.append(bytearray(data))
        self._changed.set()

    def finish(self) -> None:
        """Nothing more will come."""
        self._finished = True
        self._changed.set()

    def read_now(self, *, nobody_writes: bool) -> bytes | None:
        """See ReadEnd."""
        if self._pieces:
            data = bytes(self._pieces.popleft())
            self._taken(len(data))
            return data
        return b"" if self._finished or self._closed else None

    async def wait(self, other: asyncio.Future[Any]) -> None:
        """See ReadEnd."""
        while not (self._pieces or self._finished or self._closed):
            self._changed.clear()
            await self._changed.wait()

    def close(self) -> None:
        """See ReadEnd."""
        if not self._closed:
            self._closed = True
            self._pieces.clear()
            self._changed.set()
            self._on_closed()


class InputEnd:
    """See WriteEnd. No more is under way than the helper has room for."""

    def __init__(self, send: Callable[[bytes], None], closed: Callable[[], None]) -> None:
        """There is no room before `begin`."""
        self._send = send
        self._on_closed = closed
        self._begun = False
        self._room = 0
        self._refused = False
        self._closed = False
        self._changed = asyncio.Event()

    def begin(self) -> None:
        """The command is being started: the whole window is free."""
        self._begun = True
        self._room = frames.STDIN_WINDOW
        self._changed.set()
        if self._closed:
            self._send(frames.frame(frames.Order.CLOSE))

    def wrote(self, count: int) -> None:
        """The command took so much."""
        self._room += count
        self._changed.set()

    def refuse(self) -> None:
        """The command reads no more."""
        self._refused = True
        self._changed.set()

    def write_now(self, data: memoryview) -> int:
        """See WriteEnd."""
        if self._refused or self._closed:
            raise BrokenPipeError
        count = min(len(data), self._room, frames.LONGEST_PIECE)
        if count:
            self._room -= count
            self._send(frames.frame(frames.Order.STDIN, data[:count]))
        return count

    async def wait(self) -> None:
        """See WriteEnd."""
        while not (self._room or self._refused or self._closed):
            self._changed.clear()
            await self._changed.wait()

    def close(self) -> None:
        """See WriteEnd."""
        if not self._closed:
            self._closed = True
            self._changed.set()
            if self._begun and not self._refused:
                self._send(frames.frame(frames.Order.CLOSE))
            self._on_closed()


_READ_SHARE: Final = 4


class Window:
    """Gives back, in few frames, what was taken of the output."""

    def __init__(self, send: Callable[[bytes], None]) -> None:
        """Nothing was taken yet."""
        self._send = send
        self._taken = 0

    def take(self, count: int) -> None:
        """So much was."""
        self._taken += count
        if self._taken >= frames.OUTPUT_WINDOW // _READ_SHARE:
            self._send(frames.number(frames.Order.READ, self._taken))
            self._taken = 0
