"""Taking a session for the session service: lease, workspace fence, ending, release (F8, S6)."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import Final, Protocol

from moorage.common.v1.grant_pb2 import Grant
from moorage.owner.v1 import lease_pb2

from services.common.clock import Clock
from services.common.errors import DependencyUnavailable, MoorageError
from services.common.failpoints import failpoint
from services.common.logs import get_logger
from services.common.loops import Failures
from services.fencing.errors import LeaseHeld, LeaseStale
from services.fencing.leases import HeldLease
from services.fencing.loop import LeaseLoop
from services.session.clients import Workspaces
from services.session.journal.rules import SessionKey
from services.session.recovery.targets import Target
from services.session.turns import EndReason

_LABELS: Final = {"role": "service"}
_AGAIN: Final = 0.5
# So many at once ask owner or write; workspaces are waited for beside that.
_BUSY: Final = 16
_SHORTEST: Final = 0.1

_log: Final = get_logger(__name__)


class Journal(Protocol):
    """Where the ending is written."""

    async def show(self, key: SessionKey, grant: Grant, reason: EndReason | None = None) -> None:
        """Show a token and write nothing else: what a lower one began is LOST, for this reason."""
        ...


class Taker:
    """Takes sessions, ends what was begun under lower tokens, and gives them back."""

    def __init__(
        self,
        journal: Journal,
        workspaces: Workspaces,
        loop: LeaseLoop,
        clock: Clock,
        *,
        lease_ttl: float,
        fence_timeout: float,
        max_clock_skew: float,
    ) -> None:
        """`loop` must run. Seconds: length of the leases, for how long a fence is tried that may fail."""
        self._journal = journal
        self._workspaces = workspaces
        self._loop = loop
        self._clock = clock
        self._lease_ttl = lease_ttl
        self._fence_timeout = fence_timeout
        self._max_clock_skew = max_clock_skew
        self._room = asyncio.Semaphore(_BUSY)

    async def take(
        self, target: Target, reason: EndReason | None, *, name: str, replacing: int | None = None
    ) -> bool:
        """Take the session and give it back; False when it is somebody else's.

        `replacing` names the token of the lease to replace, live or not; without it only a
        lease that has ended is taken. `reason` is that of a turn which becomes LOST. `name` is
        of the failpoints.
        """
        await failpoint(f"session.{name}.before_acquire", target.turn_id)
        try:
            async with self._room:
                lease = await self._loop.acquire(
                    target.key.resource, ttl=self._lease_ttl, labels=_LABELS, takeover_token=replacing
                )
        except (LeaseHeld, LeaseStale):
            return False
        await self._end(target, reason, lease, name)
        return True

    def may_live(self, lease: lease_pb2.Lease) -> bool:
        """Whether a holder that was taken over may believe in its grant, its taker gone before the fence."""
        return lease.HasField("replaced_expire_time") and (
            self._left(lease.replaced_expire_time.ToDatetime(tzinfo=UTC)) > 0.0
        )

    async def _end(self, target: Target, reason: EndReason | None, lease: HeldLease, name: str) -> None:
        fenced = False
        try:
            await failpoint(f"session.{name}.after_acquire", target.turn_id)
            await self._fence(target, lease)
            fenced = True
            await failpoint(f"session.{name}.after_fence", target.turn_id)
            async with self._room:
                await self._journal.show(target.key, lease.grant, reason)
            await failpoint(f"session.{name}.before_release", target.turn_id)
        finally:
            if fenced:
                await self._loop.release(lease)
            else:
                # Something of the holder before may be alive, so nobody may have it at once.
                self._loop.leave(lease)

    async def _fence(self, target: Target, lease: HeldLease) -> None:
        """Return when nothing of lower tokens lives in the workspace, or none of their grants is good any more.

        What was started under a lease that has ended is dead without us; there the fence is
        for what is out of order.
        """
        failures = Failures("raising the fence of a workspace")
        gives_up_at = self._clock.boottime() + max(self._fence_timeout, self._replaced_for(lease))
        while (left := gives_up_at - self._clock.boottime()) > 0:
            try:
                timeout = max(min(left, self._fence_timeout), _SHORTEST)
                await self._workspaces.claim(
                    target.key.project, target.workspace_id, lease.grant, timeout=timeout
                )
                return
            except MoorageError as error:
                failures.report(error)
            if not lease.held:
                raise DependencyUnavailable(dependency="owner", cause="the lease was lost while fencing")
            await self._clock.sleep(min(_AGAIN, max(left, 0.0)))
        _log.warning(
            "a workspace was not fenced", workspace=target.workspace_id, session=target.key.session_id
        )

    def _replaced_for(self, lease: HeldLease) -> float:
        """Seconds for which a holder that was taken over may still believe in its grant."""
        return self._left(lease.replaced_expire_time) if lease.replaced_expire_time else 0.0

    def _left(self, replaced_until: datetime) -> float:
        left = (replaced_until - self._clock.now()).total_seconds()
        return max(left + self._max_clock_skew, 0.0)
