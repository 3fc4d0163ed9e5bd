"""A clock turned by hand, little by little, while real calls are made."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from services.common.clock import ManualClock

_STEP = 0.05
_BREATH = 0.002


async def advance_until(clock: ManualClock, condition: Callable[[], bool]) -> None:
    """Turn the clock until the condition holds; calls have the time to be answered in between."""
    while not condition():
        await clock.advance(_STEP)
        await asyncio.sleep(_BREATH)
