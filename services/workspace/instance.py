"""The instance: it serves under its lease, alone, on a machine cleared of what its predecessor left (F6)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

from services.common.errors import DependencyUnavailable, MoorageError, ShuttingDown
from services.common.logs import get_logger
from services.common.loops import forever
from services.fencing.leases import HeldLease
from services.fencing.loop import LeaseLoop
from services.workspace.exec.execs import Execs
from services.workspace.exec.forkserver import ForkServer
from services.workspace.exec.marker import Marker, kill_marked
from services.workspace.store.work import WorkStore
from services.workspace.writes import Writes

_LABELS: Final = {"role": "service"}
_LONGEST_RETRY: Final = 1.0
_RELEASE_TIMEOUT: Final = 2.0

_log: Final = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Place:
    """Where and how the instance serves."""

    instance_id: str
    ttl: float
    predecessor_grace: float
    endpoint: Callable[[], str]


class Instance:
    """Holds `instances/{id}`. Without it nothing is started, changed or removed."""

    def __init__(
        self,
        place: Place,
        leases: LeaseLoop,
        work: WorkStore,
        execs: Execs,
        writes: Writes,
        fork_server: ForkServer,
    ) -> None:
        """Not serving yet."""
        self.instance_id = place.instance_id
        self._place = place
        self._leases = leases
        self._work = work
        self._execs = execs
        self._writes = writes
        self._fork_server = fork_server
        self._lease: HeldLease | None = None
        self._marker: Marker | None = None
        self._cause = "it is not held yet"
        self._leaving = False
        self._took_over = asyncio.Event()
        self._preparations: list[Callable[[Marker], Awaitable[None]]] = []

    def before_serving(self, prepare: Callable[[Marker], Awaitable[None]]) -> None:
        """Have this done at each start, when the lease is held and before anything is served.

        It is told what the processes of this start carry. If it fails nothing is served.
        """
        self._preparations.append(prepare)

    @property
    def marker(self) -> Marker:
        """What the processes of this start carry."""
        if self._marker is None:
            raise self._unavailable()
        return self._marker

    @property
    def serves(self) -> bool:
        """Whether it may act."""
        return self._lease is not None and self._lease.held and not self._leaving

    @property
    def deadline(self) -> float:
        """The boot time until which its processes may live, as far as is known now."""
        return self._lease.deadline if self._lease is not None and self.serves else 0.0

    def require(self) -> None:
        """Raise unless it may act."""
        if self._leaving:
            raise ShuttingDown
        if not self.serves:
            raise self._unavailable()

    async def ready(self) -> None:
        """The readiness probe."""
        self.require()

    async def until_serving(self) -> None:
        """Return when it may act."""
        while not self.serves:
            self._took_over.clear()
            await self._took_over.wait()

    async def run(self) -> None:
        """Take the lease, serve while it is held, and take it again; ends on cancellation only."""
        try:
            await forever("holding the instance's lease", self._hold, longest_delay=_LONGEST_RETRY)
        finally:
            self._end_execs(ShuttingDown())

    async def drain(self) -> None:
        """Serve no more: every process is dead, no file is written, and the lease is given back."""
        self._leaving = True
        lease, self._lease = self._lease, None
        self._end_execs(ShuttingDown())
        await self._until_quiet()
        if lease is not None:
            await self._leases.release(lease, _RELEASE_TIMEOUT)
        await self._fork_server.close()

    async def _hold(self) -> None:
        if self._leaving:
            await asyncio.Event().wait()
        lease = await self._leases.acquire(
            f"instances/{self.instance_id}",
            ttl=self._place.ttl,
            endpoint=self._place.endpoint(),
            labels=_LABELS,
        )
        try:
            await self._take_over(lease)
            await lease.lost.wait()
        finally:
            self._lose("it was lost")
            await self._until_quiet()
            if lease.held or lease.loss is not None:
                await self._leases.release(lease, _RELEASE_TIMEOUT)

    async def _take_over(self, lease: HeldLease) -> None:
        """Clear the machine, and only then act."""
        marker = Marker(await self._work.deployment(), self.instance_id, lease.holder.partition("/")[2])
        self._cause = "what the predecessor left is being killed"
        if killed := await kill_marked(marker.is_predecessor, grace=self._place.predecessor_grace):
            _log.warning("killed what the predecessor left", signals=killed)
        self._fork_server.prepare(marker)
        for prepare in self._preparations:
            await prepare(marker)
        await self._work.take_over(lease.endpoint, lease.token)
        self._marker = marker
        self._lease = lease
        lease.on_lost(lambda _: self._lose("it was lost"))
        self._took_over.set()
        _log.info("serving workspaces", instance=self.instance_id, token=lease.token)

    def _lose(self, cause: str) -> None:
        self._lease, self._cause = None, cause
        self._end_execs(self._unavailable())

    def _end_execs(self, error: MoorageError) -> None:
        for each in self._execs.all():
            each.end(error)

    async def _until_quiet(self) -> None:
        """Return when nothing that was begun under the lease touches a workspace any more."""
        await self._execs.until_gone(self._execs.all())
        await self._writes.until_none()

    def _unavailable(self) -> DependencyUnavailable:
        return DependencyUnavailable(dependency="instance lease", cause=self._cause, retry_after=1.0)
