"""What a connection needs of an agent's process."""

from __future__ import annotations

from typing import Protocol


class ByteStream(Protocol):
    """The agent's stdin and stdout."""

    async def read(self) -> bytes:
        """Some bytes of stdout, as soon as there are any; empty at its end. Raises when it is lost."""
        ...

    async def write(self, data: bytes) -> None:
        """Return once all of it is on its way to stdin; raise when it cannot be."""
        ...
