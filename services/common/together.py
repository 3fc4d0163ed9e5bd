"""Two things at once."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import TypeVar

T = TypeVar("T")
U = TypeVar("U")


async def both(one: Coroutine[None, None, T], another: Coroutine[None, None, U]) -> tuple[T, U]:
    """Wait for both; the first error ends the other one and is raised."""
    try:
        async with asyncio.TaskGroup() as group:
            first, second = group.create_task(one), group.create_task(another)
    except BaseExceptionGroup as errors:
        raise errors.exceptions[0] from errors.exceptions[0].__cause__
    return first.result(), second.result()
