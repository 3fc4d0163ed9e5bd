"""Which faults meet which steps, and how often they did."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from tests.faults.creations import Fault

K = TypeVar("K")

_AT_ONCE = 3


@dataclass(frozen=True, slots=True)
class Round:
    """A fault that meets some workspaces, each at one of the steps."""

    fault: Fault
    steps: Sequence[str]

    def __str__(self) -> str:
        """For who reads what failed."""
        return f"{self.fault.__name__} at {', '.join(self.steps)}"


class Chances:
    """Rounds without end: all faults in turn, each at the steps that it met least, of those the rarest.

    `met` counts what happened, by fault and step; `steps` are all that there are, in their order.
    """

    def __init__(self, seed: int, faults: Mapping[Fault, Sequence[str]], steps: Sequence[str]) -> None:
        self._random = random.Random(seed)
        self._faults = faults
        self._left: list[Fault] = []
        self.steps = steps
        self.met: Counter[tuple[Fault, str]] = Counter()

    @property
    def of_steps(self) -> Counter[str]:
        """How often each step was met."""
        return _summed({(step, fault): count for (fault, step), count in self.met.items()})

    @property
    def of_faults(self) -> Counter[Fault]:
        """How often each fault happened to a workspace."""
        return _summed(self.met)

    @property
    def is_whole(self) -> bool:
        """Whether each fault met each step at which it can do harm."""
        return all(self.met[fault, step] for fault, steps in self._faults.items() for step in steps)

    def next(self) -> Round:
        """The next one."""
        if not self._left:
            self._left = self._random.sample(list(self._faults), len(self._faults))
        fault = self._left.pop()
        met = self.of_steps
        rarest = sorted(
            self._faults[fault],
            key=lambda step: (self.met[fault, step], met[step], self._random.random()),
        )[:_AT_ONCE]
        # Whoever is to be held behind a step must have passed it before anybody is held there.
        return Round(fault, sorted(rarest, key=self.steps.index, reverse=True))

    def happened(self, fault: Fault, step: str) -> None:
        """A workspace was held at a step when the fault came."""
        self.met[fault, step] += 1

    def are_met(self, least: int) -> bool:
        """Whether each step was met so often, and each fault happened."""
        return all(self.of_steps[step] >= least for step in self.steps) and all(
            self.of_faults[fault] for fault in self._faults
        )

    def __str__(self) -> str:
        """A table: a line for each fault, a column for each step."""
        width = max(len(fault.__name__) for fault in self._faults)
        numbers = "".join(f"{number:4}" for number, _ in enumerate(self.steps, 1))
        lines = [
            f"{fault.__name__:{width}}" + "".join(f"{self.met[fault, step] or '':>4}" for step in self.steps)
            for fault in self._faults
        ]
        legend = [f"{number:4} {step}: {self.of_steps[step]}" for number, step in enumerate(self.steps, 1)]
        return "\n".join((f"{'':{width}}{numbers}", *lines, *legend))


def _summed(counts: Mapping[tuple[K, Any], int]) -> Counter[K]:
    """By the first of what they are counted by."""
    summed: Counter[K] = Counter()
    for (first, _), count in counts.items():
        summed[first] += count
    return summed
