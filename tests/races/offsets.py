"""When two things are let loose on each other: offsets at random, around where both win as often."""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from collections.abc import Awaitable
from typing import TypeVar

T = TypeVar("T")
U = TypeVar("U")

# The loop's own naps are no finer than this.
_NAP = 0.002


class Offsets:
    """Seconds by which the second of two starts after the first; negative, before it.

    They are spread evenly over `width` around a centre that follows what was seen: whoever wins
    is made to start a little later, in steps that get smaller when that changes. So both sides
    occur on machines of any speed.
    """

    def __init__(self, seed: int, *, width: float, centre: float = 0.0, least: float = -1.0) -> None:
        """`least` is the smallest offset there may be."""
        self._random = random.Random(seed)
        self._width = width
        self._centre = centre
        self._least = least
        self._step = width / 2
        self._first_won: bool | None = None

    def draw(self) -> float:
        """The next offset."""
        offset = self._centre + self._random.uniform(-0.5, 0.5) * self._width
        return max(offset, self._least)

    def learn(self, *, first_won: bool) -> None:
        """How a round ended: let the second come sooner where the first won, else later."""
        if self._first_won not in (first_won, None):
            self._step = max(self._step / 2, self._width / 10)
        self._first_won = first_won
        self._centre = max(self._centre + (-self._step if first_won else self._step), self._least)


class Tally:
    """How often each side won."""

    def __init__(self, race: str, sides: tuple[str, str], seed: int) -> None:
        """Nothing has been run."""
        self.race, self.sides, self.seed = race, sides, seed
        self.wins: Counter[str] = Counter()

    def check(self, rounds: int, least: float = 0.05) -> None:
        """Print it; fails when a side won less than its share."""
        shares = {side: self.wins[side] / rounds for side in self.sides}
        told = ", ".join(f"{side} {self.wins[side]} ({share:.0%})" for side, share in shares.items())
        print(f"\n{self.race}: {rounds} rounds, seed {self.seed}: {told}")
        assert sum(self.wins.values()) == rounds
        assert set(self.wins) <= set(self.sides), self.wins
        assert all(share >= least for share in shares.values()), f"one side hardly ever won: {told}"


async def meet(first: Awaitable[T], second: Awaitable[U], offset: float) -> tuple[T, U]:
    """Both, the second so many seconds after the first; negative, before it."""
    now = time.monotonic()
    return await asyncio.gather(at(now + max(0.0, -offset), first), at(now + max(0.0, offset), second))


async def at(moment: float, work: Awaitable[T]) -> T:
    """Not before the moment, on the monotonic clock, and hardly after it."""
    while (left := moment - time.monotonic()) > 0:
        await asyncio.sleep(left - _NAP if left > 2 * _NAP else 0)
    return await work
