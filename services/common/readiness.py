"""Whether a process can do its work: probes of what it depends on, asked again and again."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from services.common.errors import DependencyUnavailable, MoorageError, StartupRefused
from services.common.health import Health
from services.common.logs import get_logger

Probe = Callable[[], Awaitable[None]]

_log: Final = get_logger(__name__)
_PATIENCE: Final = 3.0
# Until all dependencies were seen once: some are this process's own loops, others mostly start at the same time.
_FIRST_INTERVAL: Final = 0.02
_LONGEST_FIRST_INTERVAL: Final = 0.2


class Readiness:
    """Runs the probes and tells the health service. A probe raises when its dependency is missing."""

    def __init__(self, health: Health, interval: float) -> None:
        """`interval` is the time between two rounds, in seconds."""
        self._health = health
        self._interval = interval
        self._probes: dict[str, Probe] = {}
        self._missing: dict[str, str] | None = None
        self._was_ready = False
        self._stopped = False
        self.ready = asyncio.Event()

    def add(self, name: str, probe: Probe) -> None:
        """Depend on one more thing."""
        self._probes[name] = probe

    def admit(self) -> None:
        """Raise Unavailable until every dependency was there once: nothing was verified yet."""
        if self._was_ready:
            return
        name, cause = next(iter((self._missing or {}).items()), ("readiness", "not checked yet"))
        raise DependencyUnavailable(dependency=name, cause=cause, retry_after=self._interval)

    def stop(self) -> None:
        """Never ready again."""
        self._stopped = True
        self._tell(ready=False)

    async def run(self) -> None:
        """Look for ever; raises only StartupRefused, and only before everything was there once."""
        pause = _FIRST_INTERVAL
        while True:
            await self.check()
            await asyncio.sleep(self._interval if self._was_ready else min(self._interval, pause))
            pause = min(pause * 2, _LONGEST_FIRST_INTERVAL)

    async def check(self) -> None:
        """One round: all probes at the same time."""
        results = await asyncio.gather(*map(self._ask, self._probes))
        missing = {name: cause for name, cause in zip(self._probes, results, strict=True) if cause}
        if self._stopped:
            return
        self._was_ready = self._was_ready or not missing
        self._report(missing)
        self._missing = missing
        self._tell(ready=not missing)

    def _tell(self, *, ready: bool) -> None:
        self._health.set_ready(ready)
        (self.ready.set if ready else self.ready.clear)()

    async def _ask(self, name: str) -> str:
        """Why the dependency is missing, empty when it is there."""
        try:
            async with asyncio.timeout(_PATIENCE):
                await self._probes[name]()
        except TimeoutError:
            return f"no answer within {_PATIENCE:g} s"
        except StartupRefused as error:
            if not self._was_ready:
                raise
            return str(error)
        except MoorageError as error:
            return error.metadata.get("cause") or str(error)
        except Exception as error:  # noqa: BLE001 (a probe that fails is an answer)
            return f"{type(error).__name__}: {error}"
        return ""

    def _report(self, missing: dict[str, str]) -> None:
        """Log what changed, once: texts may vary from round to round, names do not."""
        before = self._missing if self._missing is not None else {}
        for name in missing.keys() - before.keys():
            _log.warning("not ready", dependency=name, cause=" ".join(missing[name].split()))
        for name in before.keys() - missing.keys():
            _log.info("dependency is back", dependency=name)
        if not missing and (before or self._missing is None):
            _log.info("ready")
