"""What has to be mounted in a container: nothing is executed in one that has something else there (W5)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple


class Elsewhere(Exception):
    """A container has another directory where the workspace's should be; the text says so."""


class Seen(NamedTuple):
    """Which directory it is, by the numbers that it has inside and outside of containers."""

    device: int
    inode: int


_NOTHING: Final = Seen(0, 0)


@dataclass(frozen=True, slots=True)
class Mount:
    """A directory that is mounted at its own path. It is held open, so that no other gets its numbers."""

    path: str
    seen: Seen

    def check(self, inside: Seen) -> None:
        """Elsewhere if that is what a container has there."""
        if inside == _NOTHING:
            raise Elsewhere(
                f"{self.path} cannot be reached in its container: it is not there, or the image closes what is above it"
            )
        if inside != self.seen:
            raise Elsewhere(f"{self.path} is another directory in its container than on this machine")
