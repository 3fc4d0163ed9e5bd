"""Activities that run beside a piece of work and can end it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager


@asynccontextmanager
async def beside(*activities: Coroutine[None, None, None]) -> AsyncIterator[None]:
    """Run them beside the block and end them with it; what one raises ends the block and is raised."""
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(activity) for activity in activities]
            try:
                yield
            finally:
                for task in tasks:
                    task.cancel()
    except BaseExceptionGroup as several:
        # The first one is why the others happened.
        raise several.exceptions[0] from None
