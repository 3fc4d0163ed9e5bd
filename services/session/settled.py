"""Work that is not left half done when the one who waits for it goes away."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


async def settled(work: Coroutine[Any, Any, T]) -> T:
    """Run `work` to its end, even when cancelled meanwhile; the cancellation is raised afterwards.

    `work` must be bounded in time. What it raised is lost when it was cancelled.
    """
    task = asyncio.create_task(work)
    cancellation: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError as error:
            cancellation = error
    if cancellation is not None:
        if not task.cancelled():
            task.exception()
        raise cancellation
    return task.result()
