"""Two things at the same moment, and what became of them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

from services.common.errors import MoorageError

T = TypeVar("T")
U = TypeVar("U")

# A head start is so many passes of the loop, times 0 to 5.
_PASSES = 4


async def reason(call: Awaitable[object]) -> str:
    """Empty, or why the call was refused."""
    try:
        await call
    except MoorageError as error:
        return error.reason_name
    return ""


async def meet(one: Awaitable[T], another: Awaitable[U], number: int) -> tuple[T, U]:
    """Both at once; with the round's number changes which comes first, and by how much.

    In two rounds of ten one is over before the other begins: every order is seen on any machine.
    """
    if number % 10 == 0:
        return await one, await another
    if number % 10 == 1:
        last = await another
        return await one, last
    passes = number // 2 % 6 * _PASSES
    first, second = (passes, 0) if number % 2 else (0, passes)
    return await asyncio.gather(_later(one, first), _later(another, second))


async def _later(work: Awaitable[T], passes: int) -> T:
    for _ in range(passes):
        await asyncio.sleep(0)
    return await work
