"""Bytes from one task to another, and the last of what a process says."""

from __future__ import annotations

import asyncio
import codecs
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


class TextTail:
    """The last characters of an output in UTF-8, in at most so many bytes; what is no UTF-8 is replaced."""

    def __init__(self, max_bytes: int) -> None:
        """Keep so many."""
        self.truncated = False
        self._max_bytes = max_bytes
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._bytes = bytearray()

    def add(self, chunk: bytes) -> None:
        """Append, and forget the oldest; a character may come in several chunks."""
        self._keep(self._decoder.decode(chunk))

    def end(self) -> None:
        """Nothing follows."""
        self._keep(self._decoder.decode(b"", final=True))

    @property
    def text(self) -> str:
        """What is kept."""
        return self._bytes.decode()

    def _keep(self, text: str) -> None:
        self._bytes += text.encode()
        cut = len(self._bytes) - self._max_bytes
        if cut > 0:
            while cut < len(self._bytes) and self._bytes[cut] & 0xC0 == 0x80:
                cut += 1
            del self._bytes[:cut]
            self.truncated = True


def last_of(text: str, max_bytes: int) -> str:
    """The last characters of a text that have at most so many bytes."""
    tail = TextTail(max_bytes)
    tail.add(text.encode())
    return tail.text
