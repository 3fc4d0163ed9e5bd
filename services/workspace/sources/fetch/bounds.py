"""How much a source may be, and what refuses it."""

from __future__ import annotations

import resource
from dataclasses import dataclass
from typing import Final

# Compressed archives that become so many times as large are bombs, from so many bytes on.
_MOST_RATIO: Final = 200
_RATIO_FROM: Final = 64 * 1024 * 1024


class Rejected(Exception):
    """This source can never be had; the text says why."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """The most that a source may be: bytes, and entries of all kinds; `memory` in bytes."""

    size: int
    entries: int
    memory: int

    def apply(self) -> None:
        """Have the kernel see to it, for this process and all below it."""
        _limit(resource.RLIMIT_FSIZE, self.size)
        _limit(resource.RLIMIT_DATA, self.memory)
        _limit(resource.RLIMIT_CORE, 0)


class Tally:
    """What a source was so far."""

    def __init__(self, bounds: Bounds, packed: int | None = None) -> None:
        """`packed`: how large the archive is that it comes from."""
        self._bounds = bounds
        self._packed = packed
        self._size = 0
        self._entries = 0

    def entry(self) -> None:
        """One more file, directory or link; Rejected when that is one too many."""
        self._entries += 1
        if self._entries > self._bounds.entries:
            raise Rejected(f"it has more than {self._bounds.entries} files")

    def grow(self, size: int) -> None:
        """So many bytes more; Rejected when that is too much."""
        self._size += size
        if size < 0 or self._size > self._bounds.size:
            raise Rejected(f"it is larger than {self._bounds.size} bytes")
        if self._packed is not None and self._size > max(_RATIO_FROM, _MOST_RATIO * self._packed):
            raise Rejected(f"it becomes more than {_MOST_RATIO} times as large as the archive")


def _limit(which: int, wanted: int) -> None:
    _, hard = resource.getrlimit(which)
    value = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    resource.setrlimit(which, (value, value))
