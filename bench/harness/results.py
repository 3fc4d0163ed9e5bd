"""Results, as `--json` prints them."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Effort:
    """How much to measure: `rounds` values for each contestant, each from about `seconds` of work."""

    rounds: int = 7
    seconds: float = 1.0


@dataclass(frozen=True, slots=True)
class Result:
    """One metric. `value` and `reference` are medians over `runs`, `ratio` is value by reference.

    `spread` is the distance between the highest and the lowest run, as a share of `value`;
    `against` says in words what the reference is.
    """

    metric: str
    value: float
    unit: str
    reference: float | None
    ratio: float | None
    runs: int
    spread: float
    against: str = ""


@dataclass(slots=True)
class Report:
    """What a bench found; `notes` tell what could not be measured, and why."""

    results: list[Result] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def add(
        self,
        metric: str,
        unit: str,
        values: Sequence[float],
        reference: Sequence[float] = (),
        *,
        against: str = "",
    ) -> None:
        """Add a metric by the values of its runs, and by those of its reference if there is one."""
        value = statistics.median(values)
        compared = statistics.median(reference) if reference else None
        ratio = value / compared if compared else None
        spread = (max(values) - min(values)) / value if value else 0.0
        self.results.append(Result(metric, value, unit, compared, ratio, len(values), spread, against))

    def extend(self, other: Report) -> None:
        """Take over what another bench found."""
        self.results.extend(other.results)
        self.notes.extend(other.notes)

    def document(self) -> dict[str, Any]:
        """For JSON."""
        return {"results": [asdict(result) for result in self.results], "notes": list(self.notes)}
