"""The messages of a streaming call, for readers that may be cancelled."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Generic, TypeVar

T = TypeVar("T")


class Arriving(AsyncIterator[T], Generic[T]):
    """Reads one message after the other; what a cancelled reader had asked for is the next one's."""

    def __init__(self, messages: AsyncIterator[T]) -> None:
        """`messages` is read by nobody else."""
        self._messages = messages
        self._next: asyncio.Task[T] | None = None

    async def __anext__(self) -> T:
        """The next message. One reader at a time."""
        if self._next is None:
            self._next = asyncio.create_task(self._read())
        message = await asyncio.shield(self._next)
        self._next = None
        return message

    async def until_half_closed(self, patience: float) -> None:
        """Take what still comes until the caller sends no more, for `patience` seconds at most."""
        try:
            async with asyncio.timeout(patience):
                async for _ in self:
                    pass
        except TimeoutError:
            pass

    def close(self) -> None:
        """Ask for no more."""
        if self._next is not None:
            self._next.cancel()

    async def _read(self) -> T:
        return await anext(self._messages)
