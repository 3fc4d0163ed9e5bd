"""Output of an engine's exec: standard output and error in one stream, each piece with a header."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final

STDOUT: Final = 1
STDERR: Final = 2

# The stream, three zero bytes, the length.
_HEADER: Final = struct.Struct(">BxxxI")


class Demultiplexer:
    """Takes the pieces apart."""

    def __init__(self) -> None:
        """Nothing came."""
        self._header = bytearray()
        self._stream = 0
        self._left = 0

    def feed(self, data: bytes) -> Iterator[tuple[int, bytes]]:
        """What came, by stream; a piece may come in parts."""
        at = 0
        while at < len(data):
            if not self._left:
                at = self._read_header(data, at)
                continue
            end = min(at + self._left, len(data))
            self._left -= end - at
            yield self._stream, data[at:end]
            at = end

    def _read_header(self, data: bytes, at: int) -> int:
        end = at + _HEADER.size - len(self._header)
        self._header += data[at:end]
        if len(self._header) == _HEADER.size:
            self._stream, self._left = _HEADER.unpack(self._header)
            self._header.clear()
        return min(end, len(data))
