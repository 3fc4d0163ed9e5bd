"""Bytes from one task to another, and the end of what a process says on stderr."""

from __future__ import annotations

import asyncio
from collections import deque


class Pipe:
    """Chunks in order, bounded: a slow reader slows the writer down."""

    def __init__(self, max_chunks: int = 4) -> None:
        """`max_chunks` may wait in it."""
        self._max_chunks = max_chunks
        self._chunks: deque[bytes] = deque()
        self._closed = False
        self._discarding = False
        self._moved = asyncio.Event()

    async def put(self, chunk: bytes) -> None:
        """Wait for room; nothing of the chunk is kept after `discard`."""
        while len(self._chunks) >= self._max_chunks and not self._discarding:
            await self._until_moved()
        if not self._discarding:
            self._chunks.append(chunk)
            self._moved.set()

    async def get(self) -> bytes:
        """The next chunk; b"" at the end."""
        while not self._chunks and not self._closed:
            await self._until_moved()
        self._moved.set()
        return self._chunks.popleft() if self._chunks else b""

    def close(self) -> None:
        """No chunk follows."""
        self._closed = True
        self._moved.set()

    def discard(self) -> None:
        """Nobody reads any more: the writer goes on at once."""
        self._discarding = True
        self._chunks.clear()
        self._moved.set()

    async def _until_moved(self) -> None:
        self._moved.clear()
        await self._moved.wait()


class Tail:
    """The last bytes of an output."""

    def __init__(self, max_bytes: int = 4096) -> None:
        """Keep so many."""
        self._max_bytes = max_bytes
        self._bytes = bytearray()

    def add(self, chunk: bytes) -> None:
        """Append, and forget the oldest."""
        self._bytes += chunk
        del self._bytes[: -self._max_bytes]

    @property
    def text(self) -> str:
        """As text, whatever it is."""
        return self._bytes.decode(errors="replace").strip()
