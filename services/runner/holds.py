"""A session's lease in this process, with what was started under it (F1)."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Final

from services.common.clock import Clock
from services.common.errors import MoorageError
from services.common.loops import Failures
from services.fencing.leases import HeldLease
from services.fencing.loop import LeaseLoop
from services.runner.clients.processes import ProcessEnd
from services.runner.clients.workspaces import Workspaces
from services.runner.endings import UNCERTAIN, TurnAbandoned
from services.runner.interrupts import time_limit
from services.runner.places import Place

_LABELS: Final = {"role": "runner"}
_RELEASE_TIMEOUT: Final = 5.0
# A lost lease has mostly ended already, or will soon.
_LOST_RELEASE_TIMEOUT: Final = 1.0
_FIRST_DELAY: Final = 0.1
_LONGEST_DELAY: Final = 1.0


class Hold:
    """The right to drive a session. It is given back when nothing runs under it any more."""

    def __init__(self, lease: HeldLease, leases: LeaseLoop, workspaces: Workspaces, clock: Clock) -> None:
        """See Holds.take."""
        self.lease: Final = lease
        self._leases = leases
        self._workspaces = workspaces
        self._clock = clock
        # Where processes may be alive.
        self._haunted: Place | None = None

    def started(self, place: Place) -> None:
        """A process may run there from now on."""
        self._haunted = place

    def ended(self, end: ProcessEnd | None) -> None:
        """Its end was seen, or not."""
        if end is not None and end.confirmed:
            self._haunted = None

    async def bury(self, seconds: float) -> bool:
        """Whether nothing lives under the lease: where that was not seen, the workspace makes it so.

        Gives up after so many seconds, and when the lease is lost: then the fence sees to it.
        """
        with contextlib.suppress(TimeoutError, MoorageError):
            async with time_limit(self._clock, seconds, TimeoutError):
                await self._claim()
        return self._haunted is None

    async def give_back(self) -> None:
        """Release the lease, once nothing lives under it.

        A process does not outlive the newest grant that was shown for it, so after the
        length of the lease it is dead even if no workspace can be asked.
        """
        await self.bury(self.lease.ttl)
        timeout = _RELEASE_TIMEOUT if self.lease.loss is None else _LOST_RELEASE_TIMEOUT
        await self._leases.release(self.lease, timeout)

    async def _claim(self) -> None:
        failures = Failures("ending the processes of a session")
        while (place := self._haunted) is not None and self.lease.held:
            try:
                await self._workspaces.claim(
                    place.endpoint, self.lease.grant, place.project, place.workspace_id
                )
                self._haunted = None
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

    async def take(self, resource: str, lost: Callable[[TurnAbandoned], None]) -> Hold:
        """Take a session's lease; raises LeaseHeld or DependencyUnavailable. `lost` as F7 wants it."""
        lease = await self._leases.acquire(resource, ttl=self._ttl, endpoint=self._endpoint(), labels=_LABELS)
        lease.on_lost(lambda each: lost(TurnAbandoned(f"lease lost: {each.loss}")))
        return Hold(lease, self._leases, self._workspaces, self._clock)
