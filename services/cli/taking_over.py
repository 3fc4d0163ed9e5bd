"""An operator's takeover of a session, step by step: lease, workspace, journal, and the lease given back (F8)."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import grpc
from moorage.common.v1.grant_pb2 import Grant
from moorage.owner.v1 import lease_pb2
from moorage.session.v1 import journal_pb2
from moorage.workspace.v1 import workspace_pb2
from moorage.workspace.v1.workspace_pb2_grpc import WorkspaceServiceStub

from services.cli.failures import CommandFailed
from services.cli.output import Output
from services.common.channels import open_channel
from services.common.errors import MoorageError
from services.common.status import from_rpc_error

if TYPE_CHECKING:
    from moorage.owner.v1.lease_pb2_grpc import LeaseServiceAsyncStub
    from moorage.session.v1.journal_pb2_grpc import JournalServiceAsyncStub

# Of the lease that is held meanwhile. Should this program die, it keeps others out for so long.
_TTL = 5
_CALL = 5.0
_AGAIN = 0.5
# Clocks may be apart.
_SKEW = 1.0


class NotTaken(CommandFailed):
    """There is nothing to take over, or it is somebody else's by now."""


class Held:
    """The lease of the operator, renewed for as long as `taken` lasts."""

    def __init__(self, owner: LeaseServiceAsyncStub, answer: lease_pb2.AcquireLeaseResponse) -> None:
        """As it was granted."""
        self._owner = owner
        self.lease = answer.lease
        self.grant: Grant = answer.grant
        self.lost = False
        self._replaced_until = answer.replaced_expire_time.ToDatetime(tzinfo=UTC)

    @property
    def replaced_for(self) -> float:
        """Seconds for which the holder before may believe in its grant."""
        return (self._replaced_until - datetime.now(UTC)).total_seconds() + _SKEW

    async def renew(self) -> None:
        """Renew until it is lost. A late belief in it harms nobody: its grants end by themselves."""
        renewal = lease_pb2.LeaseRenewal(resource=self.lease.resource, token=self.lease.token)
        request = lease_pb2.RenewLeasesRequest(holder=self.lease.holder, renewals=[renewal])
        while not self.lost:
            await asyncio.sleep(_TTL / 3)
            with contextlib.suppress(grpc.aio.AioRpcError):
                (result,) = (await self._owner.RenewLeases(request, timeout=_TTL / 3)).results
                self.lost = result.state != lease_pb2.RENEWAL_STATE_RENEWED
                self.grant = self.grant if self.lost else result.grant

    async def release(self) -> None:
        """Give it back; what cannot be given back ends by itself."""
        request = lease_pb2.ReleaseLeaseRequest(
            resource=self.lease.resource, holder=self.lease.holder, token=self.lease.token
        )
        with contextlib.suppress(grpc.aio.AioRpcError):
            await self._owner.ReleaseLease(request, timeout=_CALL)


@asynccontextmanager
async def taken(owner: LeaseServiceAsyncStub, before: lease_pb2.Lease) -> AsyncIterator[Held]:
    """Replace exactly this lease, and renew the new one within the block. Raises NotTaken."""
    request = lease_pb2.AcquireLeaseRequest(
        resource=before.resource,
        holder=f"operator/{secrets.token_hex(8)}",
        labels={"role": "operator"},
        request_id=secrets.token_hex(8),
        takeover_token=before.token,
    )
    request.ttl.FromSeconds(_TTL)
    try:
        held = Held(owner, await owner.AcquireLease(request, timeout=_CALL))
    except grpc.aio.AioRpcError as error:
        if error.code() is not grpc.StatusCode.ABORTED:
            raise
        raise NotTaken(f"{before.resource} has gone on from token {before.token} meanwhile") from error
    renewing = asyncio.create_task(held.renew())
    try:
        yield held
    finally:
        renewing.cancel()
        await asyncio.wait({renewing})


@dataclass(frozen=True, slots=True)
class Place:
    """A session's workspace, and the service that is asked for it."""

    address: grpc.aio.Channel
    project: str
    workspace_id: str

    async def claim(self, grant: Grant, timeout: float) -> None:
        """Raise the fence: afterwards nothing of lower tokens lives there. Raises MoorageError."""
        request = workspace_pb2.ClaimWorkspaceRequest(
            grant=grant, project=self.project, workspace_id=self.workspace_id
        )
        try:
            await WorkspaceServiceStub(self.address).ClaimWorkspace(request, timeout=timeout)
        except grpc.aio.AioRpcError as error:
            told = from_rpc_error(error)
            if told.reason_name == "WRONG_INSTANCE":
                await self._claim_at(told.metadata["endpoint"], request, timeout)
            elif error.code() is not grpc.StatusCode.NOT_FOUND:
                # In a workspace that was never made nothing lives.
                raise told from error

    async def _claim_at(
        self, endpoint: str, request: workspace_pb2.ClaimWorkspaceRequest, timeout: float
    ) -> None:
        channel = open_channel(endpoint)
        try:
            await WorkspaceServiceStub(channel).ClaimWorkspace(request, timeout=timeout)
        except grpc.aio.AioRpcError as error:
            raise from_rpc_error(error) from error
        finally:
            await channel.close()


async def fence(place: Place, held: Held, output: Output) -> None:
    """Return when nothing of the holder before lives, or its grant is good no more. Raises NotTaken."""
    gives_up_at = time.monotonic() + max(held.replaced_for, _CALL)
    said = False
    with output.errors.status("") as status:
        while (left := gives_up_at - time.monotonic()) > 0:
            try:
                await place.claim(held.grant, min(left, _CALL))
                return
            except MoorageError as error:
                if not said:
                    output.hint(f"workspace {place.workspace_id} does not end what runs there: {error}")
                    output.hint(
                        f"waiting for it, or until the grant that was replaced has ended, {left:.0f} s"
                    )
                said = True
            if held.lost:
                raise NotTaken(f"the lease of {held.lease.resource} was lost meanwhile")
            status.update(f"waiting for workspace {place.workspace_id} · at most {left:.0f} s")
            await asyncio.sleep(min(_AGAIN, left))


async def claim_session(journal: JournalServiceAsyncStub, held: Held, project: str, session_id: str) -> None:
    """What lower tokens began is LOST, and they begin nothing more."""
    request = journal_pb2.ClaimSessionRequest(grant=held.grant, project=project, session_id=session_id)
    await journal.ClaimSession(request, timeout=_CALL, wait_for_ready=True)
