"""Times of many cycles: shares of them, against the median bare call of the same run."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

from bench.harness.results import Report, Result
from bench.harness.sampling import percentile

_SHARES = (("p50", 0.5), ("p99", 0.99))


class Shares:
    """Collects the cycles of a run."""

    def __init__(self) -> None:
        """None yet."""
        self._seen: dict[str, list[float]] = defaultdict(list)
        self._bare: list[float] = []

    def add(self, times: Mapping[str, float], bare: Sequence[float]) -> None:
        """What a cycle took, by metric, and the bare calls beside it; all in seconds."""
        self._bare += bare
        for metric, seconds in times.items():
            self._seen[metric].append(seconds)

    def report(self) -> Report:
        """Median and 99th percentile of each metric, in milliseconds."""
        report = Report()
        for metric, values in self._seen.items():
            for name, share in _SHARES:
                report.results.append(self._result(f"{metric}_{name}", percentile(values, share), values))
        return report

    def _result(self, metric: str, value: float, values: Sequence[float]) -> Result:
        reference = percentile(self._bare, 0.5)
        return Result(
            metric,
            value * 1000,
            "ms",
            reference * 1000,
            value / reference,
            len(values),
            (max(values) - min(values)) / value,
            "the median bare unary call",
        )
