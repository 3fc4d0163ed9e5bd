"""The steps of closing a session, in their order: turn, runtime, lease, workspace.

Each may have been done before, by this replica or another one, and may be done again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC
from typing import Final

from moorage.owner.v1 import lease_pb2
from moorage.workspace.v1 import workspace_pb2

from services.common.clock import Clock
from services.common.errors import MoorageError, NotFound
from services.common.failpoints import failpoint
from services.common.validation import mint_id
from services.session.clients import Leases, Runners, Workspaces
from services.session.close.closing import CloseClaim, NotYet
from services.session.commands import StopDraft
from services.session.recovery.taking import Taker
from services.session.recovery.targets import Target
from services.session.requests import RequestKey
from services.session.sessions import OperationKind, RetentionPolicy
from services.session.store.stopping import StopStore
from services.session.store.views import ViewStore
from services.session.turns import EndReason, Turn

# A turn that is being stopped, and a directory that is being removed, are looked at so often.
_LOOK: Final = 0.5
_ANSWER: Final = 3.0
# Ending an agent may take longer than an attempt; it goes on in its runner, and is asked about again.
_END: Final = 3.0
_REMOVAL: Final = 1.5


@dataclass(frozen=True, slots=True)
class CloseSteps:
    """What closing takes; `stopping` is called when there is a Stop to deliver."""

    views: ViewStore
    stops: StopStore
    leases: Leases
    runners: Runners
    workspaces: Workspaces
    taker: Taker
    clock: Clock
    stopping: Callable[[], None]

    async def run(self, claim: CloseClaim) -> None:
        """Return when nothing of the session is left but its rows; NotYet, and MoorageError."""
        await self._end_turn(claim)
        await self._end_runtime(claim)
        if _removes_workspace(claim):
            await self._remove_workspace(claim)
        elif claim.operation is OperationKind.DELETE:
            await self._keep_workspace(claim)
        elif claim.retention is RetentionPolicy.TTL:
            # The workspace service keeps the time; told again, it keeps the earliest one.
            await self.workspaces.delete(claim.key.project, claim.workspace_id, after=claim.retention_ttl)

    async def _keep_workspace(self, claim: CloseClaim) -> None:
        """Claimed once, it is not taken for nobody's when its session is gone (W2)."""
        if await self._is_claimed(claim):
            return
        await self._fence(claim)
        # A fence is given up when it cannot be raised in time.
        if not await self._is_claimed(claim):
            raise NotYet(f"workspace {claim.workspace_id} could not be claimed", _LOOK)

    async def _is_claimed(self, claim: CloseClaim) -> bool:
        """Whether a good grant was shown for it; what was never made needs none."""
        try:
            return (await self.workspaces.get(claim.key.project, claim.workspace_id)).token > 0
        except NotFound:
            return True

    async def _end_turn(self, claim: CloseClaim) -> None:
        turn = await self._turn(claim)
        if turn is not None and not turn.stopping:
            await self._stop(claim, turn)
            turn = await self._turn(claim)
        if turn is not None:
            raise NotYet(f"turn {turn.turn_id} is being stopped", _LOOK)

    async def _turn(self, claim: CloseClaim) -> Turn | None:
        return (await self.views.get(*claim.key)).turn

    async def _stop(self, claim: CloseClaim, turn: Turn) -> None:
        """Its own holder ends it; one without a holder ends here."""
        entered = self.clock.boottime()
        draft = StopDraft(
            claim.key, mint_id("command"), turn.turn_id, claim.traceparent, entered, EndReason.CLOSED
        )
        await self.stops.stop(draft, RequestKey(claim.key.project, claim.key.session_id, "StopTurn", "", b""))
        await failpoint("session.close.after_stop")
        self.stopping()

    async def _end_runtime(self, claim: CloseClaim) -> None:
        """When it returns nobody drives the session; no turn is begun any more, so nobody will."""
        if driver := await self.leases.driver(claim.key.resource, timeout=_ANSWER):
            await self._order_end(claim, driver)
            await failpoint("session.close.after_end_runtime")
        lease = await self.leases.get(claim.key.resource, timeout=_ANSWER)
        if lease is not None and lease.live:
            raise NotYet(f"{_who(lease)} holds the session")
        if lease is not None and self.taker.may_live(lease):
            await self._fence(claim)

    async def _fence(self, claim: CloseClaim) -> None:
        """Whoever took the session from a holder may have died before it raised the fence."""
        target = Target(key=claim.key, workspace_id=claim.workspace_id)
        if not await self.taker.take(target, EndReason.TAKEN_OVER, name="close"):
            raise NotYet("somebody else has taken the session", _LOOK)

    async def _order_end(self, claim: CloseClaim, driver: lease_pb2.Lease) -> None:
        try:
            async with asyncio.timeout(_END):
                await self.runners.end_runtime(driver.endpoint, *claim.key)
        except TimeoutError:
            raise NotYet(f"{_who(driver)} is ending the session's runtime", _LOOK) from None
        except MoorageError as error:
            raise NotYet(f"{_who(driver)} drives the session: {error}") from error

    async def _remove_workspace(self, claim: CloseClaim) -> None:
        """What the caller supplied is not touched by it (W4)."""
        name = (claim.key.project, claim.workspace_id)
        await self.workspaces.delete(*name)
        await failpoint("session.close.after_delete_workspace")
        try:
            found = await self.workspaces.get(*name, wait=True, timeout=_REMOVAL)
        except NotFound:
            return
        if found.state != workspace_pb2.WORKSPACE_STATE_DELETED:
            cause = f": {found.state_reason}" if found.state_reason else ""
            raise NotYet(f"workspace {claim.workspace_id} is being removed{cause}", _LOOK)


def _removes_workspace(claim: CloseClaim) -> bool:
    """Deleting a session leaves nothing that was made for it, unless it is pinned."""
    if claim.operation is OperationKind.DELETE:
        return claim.retention is not RetentionPolicy.PINNED
    return claim.retention is RetentionPolicy.DELETE_ON_CLOSE


def _who(lease: lease_pb2.Lease) -> str:
    return f"{lease.holder} until {lease.expire_time.ToDatetime(tzinfo=UTC):%H:%M:%S}"
