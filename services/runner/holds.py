"""A session's lease in this process, with the runtime that was started under it (F1)."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from moorage.common.v1.turn_pb2 import RuntimeAfter, StopMethod
from moorage.session.v1.session_pb2 import AgentSpec

from services.common.clock import Clock
from services.common.errors import MoorageError
from services.common.failpoints import failpoint
from services.common.loops import Failures
from services.fencing.leases import HeldLease
from services.fencing.loop import LeaseLoop
from services.runner.clients.workspaces import Workspaces
from services.runner.endings import UNCERTAIN, TurnAbandoned
from services.runner.interrupts import Interruption, time_limit
from services.runner.places import Place
from services.runner.profiles import Profile
from services.runner.runtimes import Runtime, Runtimes

_LABELS: Final = {"role": "runner"}
_BURY_TIMEOUT: Final = 2.0
_RELEASE_TIMEOUT: Final = 5.0
# A lost lease has mostly ended already, or will soon.
_LOST_RELEASE_TIMEOUT: Final = 1.0
_FIRST_DELAY: Final = 0.1
_LONGEST_DELAY: Final = 1.0

Lost = Callable[[TurnAbandoned], None]


@dataclass(frozen=True, slots=True)
class RuntimeEnd:
    """How a runtime ended, and whether that was seen."""

    method: StopMethod.ValueType
    after: RuntimeAfter.ValueType


class Hold:
    """The right to drive a session, from turn to turn. Given back when nothing runs under it any more.

    `used_at` is the boot time at which the last turn under it ended.
    """

    def __init__(self, lease: HeldLease, leases: LeaseLoop, workspaces: Workspaces, clock: Clock) -> None:
        """See Holds.take."""
        self.lease: Final = lease
        self.runtime: Runtime | None = None
        self.used_at = clock.boottime()
        self._leases = leases
        self._workspaces = workspaces
        self._clock = clock
        # Where processes may be alive, and whether others than the runtime's.
        self._haunted: Place | None = None
        self._has_strays = False
        self._watcher: Lost | None = None
        lease.on_lost(lambda _: self._tell())

    @property
    def resource(self) -> str:
        """The name of the session's lease."""
        return self.lease.resource

    def watched_by(self, watcher: Lost) -> None:
        """From now on this one, and no other, is told when the lease is lost; at once if it is (F7)."""
        self._watcher = watcher
        if self.lease.loss is not None:
            self._tell()

    async def launch(
        self,
        runtimes: Runtimes,
        place: Place,
        profile: Profile,
        agent: AgentSpec,
        environment: Mapping[str, str],
    ) -> Runtime:
        """Have an agent started; it is this hold's runtime until it is ended."""
        self._haunted = place
        self.runtime = await runtimes.launch(self.lease, place, profile, agent, environment)
        return self.runtime

    @property
    def has_strays(self) -> bool:
        """Whether something besides the runtime may be alive."""
        return self._has_strays

    def haunt(self, place: Place) -> None:
        """Something that was started besides the runtime may be alive there, until the workspace ends it."""
        self._haunted, self._has_strays = place, True

    async def end_runtime(self) -> RuntimeEnd:
        """End the runtime, if there is one, step by step (S8); returns when it is dead, or nobody knows."""
        method = StopMethod.STOP_METHOD_UNSPECIFIED
        if self.runtime is not None:
            method = await self.runtime.end()
            self._leave_runtime()
        buried = await self._bury(_BURY_TIMEOUT)
        return RuntimeEnd(
            method, RuntimeAfter.RUNTIME_AFTER_ENDED if buried else RuntimeAfter.RUNTIME_AFTER_UNSPECIFIED
        )

    async def died(self) -> None:
        """Return when there is no live runtime."""
        if self.runtime is not None:
            await self.runtime.died()

    async def cut(self) -> None:
        """End the runtime, if there is one, by leaving it to its workspace."""
        if self.runtime is not None:
            await self.runtime.cut()
            self._leave_runtime()

    async def abandon(self) -> None:
        """Cut the runtime and let the lease end by itself, for want of a better way."""
        self._leases.leave(self.lease)
        await self.cut()

    async def retire(self) -> None:
        """End the runtime, step by step as long as the lease lasts, and give the lease back."""
        loss = Interruption()
        self.watched_by(loss.interrupt)
        try:
            with contextlib.suppress(TurnAbandoned):
                async with loss:
                    await self.end_runtime()
        finally:
            await self.cut()
        await self.give_back()

    async def give_back(self) -> None:
        """Release the lease, once nothing lives under it.

        A process does not outlive the newest grant that was shown for it, so after the
        length of the lease it is dead even if no workspace can be asked.
        """
        await self.cut()
        await self._bury(self.lease.ttl)
        await failpoint("runner.lease.before_release")
        timeout = _RELEASE_TIMEOUT if self.lease.loss is None else _LOST_RELEASE_TIMEOUT
        await self._leases.release(self.lease, timeout)

    def _tell(self) -> None:
        if self._watcher is not None:
            self._watcher(TurnAbandoned(f"lease lost: {self.lease.loss}"))

    def _leave_runtime(self) -> None:
        runtime, self.runtime = self.runtime, None
        end = runtime.process.end if runtime else None
        if end is not None and end.confirmed and not self._has_strays:
            self._haunted = None

    async def _bury(self, seconds: float) -> bool:
        """Whether nothing lives under the lease: where that was not seen, the workspace makes it so.

        Gives up after so many seconds, and when the lease is lost: then the fence sees to it.
        """
        with contextlib.suppress(TimeoutError, MoorageError):
            async with time_limit(self._clock, seconds, TimeoutError):
                await self._claim()
        return self._haunted is None

    async def _claim(self) -> None:
        failures = Failures("ending the processes of a session")
        while (place := self._haunted) is not None and self.lease.held:
            try:
                await self._workspaces.claim(
                    place.endpoint, self.lease.grant, place.project, place.workspace_id
                )
                self._haunted, self._has_strays = None, False
            except UNCERTAIN as error:
                failures.report(error)
                await self._clock.sleep(failures.back_off(_FIRST_DELAY, _LONGEST_DELAY))


class Holds:
    """Takes leases of sessions for this process."""

    def __init__(
        self,
        leases: LeaseLoop,
        workspaces: Workspaces,
        clock: Clock,
        *,
        ttl: float,
        endpoint: Callable[[], str],
    ) -> None:
        """`endpoint` is where others find the holder; `ttl` in seconds."""
        self._leases = leases
        self._workspaces = workspaces
        self._clock = clock
        self._ttl = ttl
        self._endpoint = endpoint
        self.holder: Final = leases.holder

    async def take(self, resource: str) -> Hold:
        """Take a session's lease; raises LeaseHeld or DependencyUnavailable."""
        lease = await self._leases.acquire(resource, ttl=self._ttl, endpoint=self._endpoint(), labels=_LABELS)
        return Hold(lease, self._leases, self._workspaces, self._clock)
