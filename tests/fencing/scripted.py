"""An owner that does as a test says, on a real gRPC server, and records what it was asked."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import grpc
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from moorage.owner.v1 import lease_pb2
from moorage.owner.v1.lease_pb2_grpc import LeaseServiceServicer, add_LeaseServiceServicer_to_server

from services.common.channels import open_channel
from services.common.errors import Aborted, MoorageError
from services.common.status import to_status
from services.fencing.grants import GrantClaims, GrantSigner
from services.owner.leases import LeaseHeld, LeaseStale, RequestIdReused, TakeoverStale

Context = grpc.aio.ServicerContext[Any, Any]
Act = Callable[[Context], Awaitable[None]]

START = datetime(2024, 1, 1, tzinfo=UTC)


class ScriptedOwner(LeaseServiceServicer):
    """Grants and renews whatever it is asked; a takeover must name the newest token of all.

    `before` and `after` run around the next calls, one each.
    """

    def __init__(self) -> None:
        self.signer = GrantSigner("key_1", Ed25519PrivateKey.generate())
        self.keys = [self.signer]
        self.asked: list[Any] = []
        self.before: list[Act] = []
        self.after: list[Act] = []
        self.renewal_states: dict[str, lease_pb2.RenewalState.ValueType] = {}
        self.renewal_results = 1.0
        self.granted: dict[str, lease_pb2.AcquireLeaseResponse] = {}
        self.granted_for: dict[str, lease_pb2.AcquireLeaseRequest] = {}
        self.token = 0

    def asked_for(self, kind: type[Any]) -> list[Any]:
        """The requests of one kind, oldest first."""
        return [request for request in self.asked if isinstance(request, kind)]

    @property
    def renewals(self) -> list[list[str]]:
        """The resources of each RenewLeases call."""
        calls = self.asked_for(lease_pb2.RenewLeasesRequest)
        return [sorted(item.resource for item in call.renewals) for call in calls]

    async def AcquireLease(
        self, request: lease_pb2.AcquireLeaseRequest, context: Context
    ) -> lease_pb2.AcquireLeaseResponse:
        async with self._acting(request, context):
            if refusal := self._refusal(request):
                await context.abort_with_status(to_status(refusal))
            if request.request_id not in self.granted:
                self.granted[request.request_id] = self._grant(request)
        return self.granted[request.request_id]

    async def RenewLeases(
        self, request: lease_pb2.RenewLeasesRequest, context: Context
    ) -> lease_pb2.RenewLeasesResponse:
        async with self._acting(request, context):
            results = [self._renew(request.holder, item) for item in request.renewals]
        return lease_pb2.RenewLeasesResponse(results=results[: int(len(results) * self.renewal_results)])

    async def ReleaseLease(
        self, request: lease_pb2.ReleaseLeaseRequest, context: Context
    ) -> lease_pb2.ReleaseLeaseResponse:
        async with self._acting(request, context):
            pass
        return lease_pb2.ReleaseLeaseResponse()

    async def ListGrantKeys(
        self, request: lease_pb2.ListGrantKeysRequest, context: Context
    ) -> lease_pb2.ListGrantKeysResponse:
        async with self._acting(request, context):
            keys = [lease_pb2.GrantKey(kid=key.kid, public_key=key.public_key) for key in self.keys]
        return lease_pb2.ListGrantKeysResponse(keys=keys)

    @contextlib.asynccontextmanager
    async def _acting(self, request: Any, context: Context) -> AsyncIterator[None]:
        self.asked.append(request)
        if self.before:
            await self.before.pop(0)(context)
        yield
        if self.after:
            await self.after.pop(0)(context)

    def _refusal(self, request: lease_pb2.AcquireLeaseRequest) -> MoorageError | None:
        known = self.granted_for.setdefault(request.request_id, request)
        if request != known:
            return RequestIdReused(holder=request.holder, request_id=request.request_id)
        if request.request_id in self.granted or request.takeover_token in (0, self.token):
            return None
        del self.granted_for[request.request_id]
        return TakeoverStale(resource=request.resource, token=request.takeover_token)

    def _grant(self, request: lease_pb2.AcquireLeaseRequest) -> lease_pb2.AcquireLeaseResponse:
        self.token += 1
        ttl = request.ttl.ToTimedelta()
        lease = lease_pb2.Lease(
            resource=request.resource,
            holder=request.holder,
            token=self.token,
            ttl=request.ttl,
            endpoint=request.endpoint,
            labels=request.labels,
            live=True,
        )
        lease.expire_time.FromDatetime(START + ttl)
        grant = self.sign(request.resource, request.holder, self.token, START + ttl)
        response = lease_pb2.AcquireLeaseResponse(lease=lease, grant=grant)
        if request.takeover_token:
            response.replaced_expire_time.FromDatetime(START + timedelta(seconds=30))
        return response

    def _renew(self, holder: str, item: lease_pb2.LeaseRenewal) -> lease_pb2.RenewalResult:
        state = self.renewal_states.get(item.resource, lease_pb2.RENEWAL_STATE_RENEWED)
        result = lease_pb2.RenewalResult(resource=item.resource, state=state)
        if state == lease_pb2.RENEWAL_STATE_RENEWED:
            expire_time = START + timedelta(minutes=len(self.renewals))
            result.expire_time.FromDatetime(expire_time)
            result.grant.CopyFrom(self.sign(item.resource, holder, item.token, expire_time))
        return result

    def sign(self, resource: str, holder: str, token: int, expire_time: datetime) -> Any:
        return self.signer.sign(GrantClaims(resource, holder, token, expire_time, "runner"))


@contextlib.asynccontextmanager
async def serving(owner: ScriptedOwner) -> AsyncIterator[grpc.aio.Channel]:
    """Serve it within the block; gives a channel to it."""
    server = grpc.aio.server()
    port = server.add_insecure_port("127.0.0.1:0")
    add_LeaseServiceServicer_to_server(owner, server)
    await server.start()
    try:
        async with open_channel(f"127.0.0.1:{port}") as channel:
            yield channel
    finally:
        await server.stop(0)


def failing(code: grpc.StatusCode) -> Act:
    """Fail with a bare status, as a broken connection does."""

    async def act(context: Context) -> None:
        await context.abort(code, "as the test says")

    return act


def refusing(error: MoorageError) -> Act:
    """Refuse as owner does."""

    async def act(context: Context) -> None:
        await context.abort_with_status(to_status(error))

    return act


def held_by(holder: str, resource: str) -> MoorageError:
    """What owner says of a live lease."""
    return LeaseHeld(resource=resource, holder=holder, expire_time=START, retry_after=3.0)


def stale(resource: str) -> Aborted:
    """What owner says of a lease that ended."""
    return LeaseStale(resource=resource, holder="anybody/1", token=1)
