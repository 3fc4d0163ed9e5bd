"""What can be measured of the collector: OpenTelemetry metrics.

- `moorage.workspace.garbage`          findings, by kind, provider and whether they were dealt with
- `moorage.workspace.collections`      passes, by whether every provider could be asked
- `moorage.workspace.collection_age`   seconds since a pass last was whole, or since the start
- `moorage.workspace.things`           what there is, by provider and thing (container, directory)
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from opentelemetry.metrics import CallbackOptions, Observation

from services.common.clock import Clock
from services.common.metrics import meter
from services.workspace.collector.garbage import Garbage
from services.workspace.providers.found import Found, Thing


class Gauges:
    """The collector's metrics of one instance."""

    def __init__(self, instance_id: str, clock: Clock) -> None:
        """They are observed from now on."""
        self._labels = {"instance": instance_id}
        self._clock = clock
        self._whole = clock.boottime()
        self._things: dict[str, Counter[Thing]] = {}
        self._garbage = meter().create_counter("moorage.workspace.garbage")
        self._passes = meter().create_counter("moorage.workspace.collections")
        meter().create_observable_gauge("moorage.workspace.collection_age", [self._age], unit="s")
        meter().create_observable_gauge("moorage.workspace.things", [self._count])

    def garbage(self, garbage: Garbage) -> None:
        """Something was found."""
        kind = garbage.kind.lower()
        self._garbage.add(
            1, {**self._labels, "kind": kind, "provider": garbage.provider, "done": garbage.done}
        )

    def surveyed(self, provider: str, found: Sequence[Found]) -> None:
        """A provider has told what there is."""
        self._things[provider] = Counter(each.thing for each in found)

    def passed(self, *, whole: bool) -> None:
        """A pass has ended."""
        if whole:
            self._whole = self._clock.boottime()
        self._passes.add(1, {**self._labels, "whole": whole})

    def _age(self, _: CallbackOptions) -> Iterable[Observation]:
        yield Observation(self._clock.boottime() - self._whole, self._labels)

    def _count(self, _: CallbackOptions) -> Iterable[Observation]:
        for provider, things in self._things.items():
            for thing in Thing:
                labels = {**self._labels, "provider": provider, "thing": thing.value}
                yield Observation(things[thing], labels)
