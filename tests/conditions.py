"""Waiting for what a test expects, instead of sleeping and hoping."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable

_POLL = 0.01


async def eventually(
    condition: Callable[[], bool | Awaitable[bool]], *, within: float = 10.0, what: str = ""
) -> None:
    """Return when the condition holds; fail when it does not in time."""
    try:
        async with asyncio.timeout(within):
            while not await _holds(condition):
                await asyncio.sleep(_POLL)
    except TimeoutError:
        raise AssertionError(f"not within {within:g} s: {what or condition}") from None


async def _holds(condition: Callable[[], bool | Awaitable[bool]]) -> bool:
    outcome = condition()
    return await outcome if inspect.isawaitable(outcome) else bool(outcome)
