"""This runner's own lease, by which the session service finds it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

from services.common.clock import Clock
from services.common.errors import MoorageError, Unavailable
from services.common.logs import get_logger
from services.common.loops import forever
from services.fencing.leases import HeldLease
from services.fencing.loop import LeaseLoop
from services.runner.interrupts import Interruption

_log: Final = get_logger(__name__)
_LONGEST_DELAY: Final = 2.0


class NotRegistered(Unavailable):
    """runner {name} is not registered: {cause}"""


class _Closed(Exception):
    """The runner takes no more turns."""


class Registration:
    """Holds `runners/{name}`. A lost one is taken again; without it the runner is not ready.

    While another live process has the same name, this one waits.
    """

    def __init__(
        self,
        leases: LeaseLoop,
        clock: Clock,
        *,
        name: str,
        ttl: float,
        endpoint: Callable[[], str],
        labels: Mapping[str, str],
        registered: Callable[[], Awaitable[None]],
    ) -> None:
        """`endpoint` is asked when the lease is taken, for then the runner serves.

        `registered` is awaited as soon as it is taken: turns may come from then on.
        """
        self._leases = leases
        self._clock = clock
        self._name = name
        self._ttl = ttl
        self._endpoint = endpoint
        self._labels = labels
        self._registered = registered
        self._lease: HeldLease | None = None
        self._cause = "it has just started"
        self._closing = Interruption()
        self._ended = asyncio.Event()
        self._ended.set()

    async def ready(self) -> None:
        """Raise NotRegistered with the cause while the lease is not held."""
        if self._lease is None or not self._lease.held:
            raise NotRegistered(name=self._name, cause=self._cause)

    async def run(self) -> None:
        """Keep it until `release`."""
        self._ended.clear()
        try:
            async with self._closing:
                await forever(
                    f"registering as runners/{self._name}",
                    self._hold,
                    clock=self._clock,
                    longest_delay=_LONGEST_DELAY,
                )
        except _Closed:
            await self._give_back()
        finally:
            self._ended.set()

    async def release(self) -> None:
        """Give it back for good: the runner takes no more turns."""
        self._closing.interrupt(_Closed())
        await self._ended.wait()

    async def _hold(self) -> None:
        try:
            self._lease = await self._leases.acquire(
                f"runners/{self._name}", ttl=self._ttl, endpoint=self._endpoint(), labels=self._labels
            )
        except MoorageError as error:
            self._cause = str(error)
            raise
        await self._registered()
        _log.info("registered", runner=self._name, holder=self._leases.holder, **self._labels)
        await self._lease.lost.wait()
        self._cause = "its lease was lost"

    async def _give_back(self) -> None:
        self._cause = "it is shutting down"
        if self._lease is not None:
            await self._leases.release(self._lease)
