"""One pass after the other: at the start, again and again, and when somebody asks for one."""

from __future__ import annotations

import asyncio
import contextlib
from collections import defaultdict
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Final

from services.common.clock import Clock
from services.common.logs import get_logger
from services.common.loops import forever
from services.workspace.collector.garbage import Garbage, Report
from services.workspace.collector.gauges import Gauges
from services.workspace.collector.overdue import Overdue
from services.workspace.collector.sweep import Sweep
from services.workspace.collector.unclaimed import Claims
from services.workspace.instance import Instance
from services.workspace.providers.registry import Provider, Registry, Unasked
from services.workspace.worker import Worker

# A pass ends; what it did not come to is found by the next one.
_MOST: Final = 1000

_log: Final = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Pace:
    """Seconds between passes, after one in which a provider could not be asked, and at least, whoever wakes it."""

    interval: float
    retry: float
    least: float


@dataclass(frozen=True, slots=True)
class Looks:
    """What a pass looks at, of each provider: the rows, and then the provider itself."""

    overdue: Overdue
    claims: Claims
    sweep: Sweep


class Collector:
    """One per instance; one pass over a provider at a time. `passes` is how many it has made by itself."""

    def __init__(
        self,
        instance: Instance,
        registry: Registry,
        looks: Looks,
        worker: Worker,
        gauges: Gauges,
        pace: Pace,
        clock: Clock,
    ) -> None:
        """It looks at nothing before it runs or is asked to."""
        self._instance = instance
        self._registry = registry
        self._looks = looks
        self._worker = worker
        self._gauges = gauges
        self._pace = pace
        self._clock = clock
        self.passes = 0
        self._one_at_a_time: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._woken = asyncio.Event()

    def wake(self) -> None:
        """Something has changed that is not in the rows: an engine is back, something could not be made."""
        self._woken.set()

    async def run(self) -> None:
        """Pass until cancelled."""
        await forever("collecting garbage", self._step, clock=self._clock, longest_delay=self._pace.interval)

    async def collect(self, provider: str = "", *, dry_run: bool = False) -> Report:
        """One pass over one provider's, or over all; ProviderUnavailable when it is not registered."""
        providers = [self._registry.get(provider)] if provider else self._registry.by_name()
        return await self._pass(providers, dry_run=dry_run)

    async def _step(self) -> None:
        await self._instance.until_serving()
        self._woken.clear()
        report = await self.collect()
        self.passes += 1
        # Whatever fails again and again wakes it each time.
        await self._clock.sleep(self._pace.least)
        seconds = self._pace.retry if report.unasked else self._pace.interval
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._woken.wait()

    async def _pass(self, providers: Sequence[Provider], *, dry_run: bool) -> Report:
        """Side by side, as one may hang. All have ended when it returns or raises, also when it is cancelled."""
        garbage: list[Garbage] = []
        looks = (self._look(each, garbage, dry_run=dry_run) for each in providers)
        ended = list(zip(providers, await asyncio.gather(*looks, return_exceptions=True), strict=True))
        unasked = {provider.name: str(error) for provider, error in ended if isinstance(error, Unasked)}
        for _, error in ended:
            if error is not None and not isinstance(error, Unasked):
                raise error
        if not dry_run:
            self._gauges.passed(whole=not unasked and len(providers) == len(self._registry.by_name()))
        return Report(tuple(sorted(garbage, key=lambda each: each.provider)), unasked)

    async def _look(self, provider: Provider, garbage: list[Garbage], *, dry_run: bool) -> None:
        """Whoever waits for one provider's pass to end waits for no other's: its engine may hang."""
        async with self._one_at_a_time[provider.name]:
            self._instance.require()
            await self._look_at(provider, garbage, dry_run=dry_run)

    async def _look_at(self, provider: Provider, garbage: list[Garbage], *, dry_run: bool) -> None:
        looks = self._looks
        for findings in (
            looks.overdue.run(provider.name, dry_run=dry_run),
            looks.claims.run(provider.name, dry_run=dry_run),
            looks.sweep.run(provider, self._gauges, dry_run=dry_run),
        ):
            if len(garbage) >= _MOST:
                return
            async with aclosing(findings):
                await self._take(findings, garbage, dry_run=dry_run)
            # What was marked is removed by the worker, beside the rest of the pass.
            self._worker.wake()

    async def _take(
        self, findings: AsyncGenerator[Garbage, None], garbage: list[Garbage], *, dry_run: bool
    ) -> None:
        async for each in findings:
            garbage.append(each)
            if not dry_run:
                self._gauges.garbage(each)
                _tell(each)
            if len(garbage) >= _MOST:
                return
            self._instance.require()


def _tell(garbage: Garbage) -> None:
    _log.warning(
        "garbage collected" if garbage.done else "garbage is left for the next pass",
        kind=garbage.kind,
        provider=garbage.provider,
        project=garbage.project,
        workspace=garbage.workspace_id,
        resource=garbage.resource,
        cause=garbage.cause,
    )
