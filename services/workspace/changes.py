"""Tells those who wait in this process that some workspace may have changed."""

from __future__ import annotations

import asyncio


class Changes:
    """Waiters look at the row again; they also do so now and then, as others may change it."""

    def __init__(self) -> None:
        """Nobody waits."""
        self._changed = asyncio.Event()

    def notify(self) -> None:
        """Something changed."""
        self._changed.set()
        self._changed = asyncio.Event()

    def current(self) -> asyncio.Event:
        """Set by the next change; take it before looking at the row, so that no change is missed."""
        return self._changed
