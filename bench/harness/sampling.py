"""Measuring: contestants take turns, so that what the machine does meanwhile meets all of them."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Awaitable, Callable, Sequence

Measure = Callable[[], Awaitable[float]]


async def interleaved(rounds: int, **measures: Measure) -> dict[str, list[float]]:
    """The values of each contestant, one for each round.

    A first round warms up and is not counted; every other round goes in the opposite order.
    """
    values: dict[str, list[float]] = {name: [] for name in measures}
    for number in range(rounds + 1):
        names = list(measures) if number % 2 else list(measures)[::-1]
        for name in names:
            value = await measures[name]()
            if number:
                values[name].append(value)
    return values


async def rate(seconds: float, *workers: Callable[[], Awaitable[int]]) -> float:
    """How many things a second: each worker is called again and again and says how many it did."""
    began = time.perf_counter()

    async def repeat(work: Callable[[], Awaitable[int]]) -> int:
        done = 0
        while time.perf_counter() < began + seconds:
            done += await work()
        return done

    done = await asyncio.gather(*(repeat(work) for work in workers))
    return sum(done) / (time.perf_counter() - began)


async def rate_of(seconds: float, call: Callable[[], object], at_once: int = 100) -> float:
    """How many calls a second of something that does not wait; the clock is read every `at_once` calls."""
    done, began = 0, time.perf_counter()
    while time.perf_counter() < began + seconds:
        for _ in range(at_once):
            call()
        done += at_once
    return done / (time.perf_counter() - began)


async def duration(work: Awaitable[object]) -> float:
    """Seconds until it is done."""
    began = time.perf_counter()
    await work
    return time.perf_counter() - began


def percentile(values: Sequence[float], share: float) -> float:
    """The smallest value that is not below `share` (0 to 1) of all."""
    return sorted(values)[max(0, math.ceil(share * len(values)) - 1)]
