"""Warm runtimes between turns, each with its lease: bounded in number and time (T8)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextvars import Context
from dataclasses import dataclass
from typing import Final, Generic, Protocol, TypeVar

from services.common.clock import Clock
from services.common.logs import get_logger
from services.runner.endings import TurnAbandoned
from services.runner.interrupts import time_limit

_log: Final = get_logger(__name__)


class Tenant(Protocol):
    """What can be parked: a hold with its runtime."""

    @property
    def resource(self) -> str:
        """The name of the session's lease."""
        ...

    @property
    def used_at(self) -> float:
        """The boot time at which its last turn ended."""
        ...

    def watched_by(self, watcher: Callable[[TurnAbandoned], None]) -> None:
        """Tell the watcher, and nobody else from now on, when the lease is lost."""
        ...

    async def died(self) -> None:
        """Return when there is no live runtime."""
        ...

    async def retire(self) -> None:
        """End the runtime and give the lease back; returns when that is done."""
        ...

    async def abandon(self) -> None:
        """End the runtime at once and let the lease end by itself."""
        ...


TenantT = TypeVar("TenantT", bound=Tenant)


@dataclass(frozen=True, slots=True)
class _Berth(Generic[TenantT]):
    tenant: TenantT
    watch: asyncio.Task[None]


class Park(Generic[TenantT]):
    """At most one tenant per session; it stays until it is taken, or has to go.

    Whatever decides about a tenant does so between two suspensions: it is taken, or it is
    retired, and never both.
    """

    def __init__(self, clock: Clock, *, limit: int, window: float) -> None:
        """`limit` tenants at most, each for `window` seconds after its last turn."""
        self._clock = clock
        self._limit = limit
        self._window = window
        self._parked: dict[str, _Berth[TenantT]] = {}
        self._leaving: dict[str, asyncio.Event] = {}
        self._closed = False
        self._tasks: asyncio.TaskGroup | None = None

    @property
    def is_open(self) -> bool:
        """Whether a tenant may be put."""
        return self._limit > 0 and not self._closed and self._tasks is not None

    def __len__(self) -> int:
        """How many are parked."""
        return len(self._parked)

    @property
    def runtimes(self) -> int:
        """How many live: those that are being ended, too."""
        return len(self._parked) + len(self._leaving)

    async def run(self) -> None:
        """Watch over the parked; cancelled, it leaves none alive."""
        try:
            async with asyncio.TaskGroup() as self._tasks:
                await asyncio.Event().wait()
        finally:
            self._tasks = None
            for berth in self._parked.values():
                await berth.tenant.abandon()

    def put(self, tenant: TenantT) -> None:
        """Park a tenant; its time counts from its last turn. Those unused for longest make room."""
        if not self.is_open or self._tasks is None:
            raise RuntimeError("the park is closed")
        watch = _apart(self._tasks, self._watch(tenant))
        self._parked[tenant.resource] = _Berth(tenant, watch)
        tenant.watched_by(lambda loss: self._dismiss(tenant, str(loss)))
        while len(self._parked) > self._limit:
            oldest = min(self._parked.values(), key=lambda berth: berth.tenant.used_at)
            self._dismiss(oldest.tenant, "others were used later")

    def take(self, resource: str) -> TenantT | None:
        """The session's tenant, which is not parked any more; None without one."""
        berth = self._parked.pop(resource, None)
        if berth is None:
            return None
        berth.watch.cancel()
        return berth.tenant

    def dismiss(self, resource: str, cause: str) -> None:
        """Begin to end the session's runtime, if there is one."""
        if berth := self._parked.get(resource):
            self._dismiss(berth.tenant, cause)

    def is_leaving(self, resource: str) -> bool:
        """Whether the session's runtime is being ended."""
        return resource in self._leaving

    async def until_left(self, resource: str) -> None:
        """Return when no runtime of the session is being ended."""
        if event := self._leaving.get(resource):
            await event.wait()

    async def close(self) -> None:
        """Take no more tenants, and end those that there are; returns when all have left."""
        self._closed = True
        for berth in list(self._parked.values()):
            self._dismiss(berth.tenant, "the runner shuts down")
        for event in list(self._leaving.values()):
            await event.wait()

    async def _watch(self, tenant: TenantT) -> None:
        left = tenant.used_at + self._window - self._clock.boottime()
        cause = "its agent has ended"
        try:
            async with time_limit(self._clock, left, TimeoutError):
                await tenant.died()
        except TimeoutError:
            cause = f"no turn came within {self._window:g} s"
        self._dismiss(tenant, cause)

    def _dismiss(self, tenant: TenantT, cause: str) -> None:
        """Late news of a tenant that was taken, or has been replaced, change nothing."""
        resource = tenant.resource
        berth = self._parked.get(resource)
        if berth is None or berth.tenant is not tenant or self._tasks is None:
            return
        del self._parked[resource]
        if berth.watch is not asyncio.current_task():
            berth.watch.cancel()
        self._leaving[resource] = asyncio.Event()
        _apart(self._tasks, self._retire(tenant, cause))

    async def _retire(self, tenant: TenantT, cause: str) -> None:
        resource = tenant.resource
        _log.info("ending a warm runtime", resource=resource, cause=cause)
        try:
            await tenant.retire()
        except Exception as error:  # noqa: BLE001 (the lease then ends by itself; the others stay)
            _log.error("a warm runtime was not ended in order", resource=resource, exc_info=error)
            await tenant.abandon()
        finally:
            self._leaving.pop(resource).set()


def _apart(tasks: asyncio.TaskGroup, work: Coroutine[None, None, None]) -> asyncio.Task[None]:
    """A task that logs and traces in nobody's name: whoever starts it is about another turn, mostly."""
    return tasks.create_task(work, context=Context())
