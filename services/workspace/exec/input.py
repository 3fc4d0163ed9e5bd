"""Standard input of an exec: bounded, and written only while the exec may live."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final

from services.workspace.exec.process import WriteEnd

# What a command leaves unread up to this size does not hold back the frames behind it, such as grants.
BUFFER: Final = 1024 * 1024
_END_OF_TRANSMISSION: Final = b"\x04"


class Stdin:
    """Takes what the caller sends and gives it to the command at the command's pace."""

    def __init__(self, end: WriteEnd, *, terminal: bool, may_write: Callable[[], bool]) -> None:
        """`may_write` is asked before each write: what it refuses never reaches the command."""
        self._end = end
        self._terminal = terminal
        self._may_write = may_write
        self._waiting: deque[memoryview] = deque()
        self._size = 0
        self._closing = False
        self._changed = asyncio.Event()
        self._room = asyncio.Event()

    async def put(self, data: bytes) -> None:
        """Accept bytes; suspends the caller while more than 1 MiB waits for the command."""
        if self._closing or not data:
            return
        at_once = not self._waiting
        self._waiting.append(memoryview(data))
        self._size += len(data)
        if at_once:
            self._write_some()
        self._changed.set()
        while self._size > BUFFER:
            self._room.clear()
            await self._room.wait()

    def close(self) -> None:
        """The command reads the end after what was accepted before. A terminal gets its end character."""
        if self._terminal and not self._closing:
            self._waiting.append(memoryview(_END_OF_TRANSMISSION))
            self._size += 1
        self._closing = True
        self._changed.set()

    async def run(self) -> None:
        """Write what waits until it is closed; nobody else waits on the end or closes it meanwhile."""
        while self._waiting or not self._closing:
            if not self._may_write():
                return
            if self._waiting:
                await self._end.wait()
                self._write_some()
            else:
                self._changed.clear()
                await self._changed.wait()
        if not self._terminal:
            self._end.close()

    def _write_some(self) -> None:
        try:
            while self._waiting and self._may_write() and (count := self._end.write_now(self._waiting[0])):
                self._advance(count)
        except OSError:
            self._give_up()
        if self._size <= BUFFER:
            self._room.set()

    def _advance(self, count: int) -> None:
        self._size -= count
        self._waiting[0] = self._waiting[0][count:]
        if not self._waiting[0]:
            self._waiting.popleft()

    def _give_up(self) -> None:
        """The command closed its side: what comes has no reader."""
        self._closing = True
        self._waiting.clear()
        self._size = 0
