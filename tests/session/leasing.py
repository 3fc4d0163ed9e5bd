"""Leases of a real owner, as the tests of dispatch and watchdog take them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import grpc
from google.protobuf.duration_pb2 import Duration
from moorage.owner.v1 import lease_pb2
from moorage.owner.v1.lease_pb2_grpc import LeaseServiceStub

from services.session.sessions import resource_of

if TYPE_CHECKING:
    from moorage.owner.v1.lease_pb2_grpc import LeaseServiceAsyncStub

LONG = 600.0


class Taker:
    """Takes leases under any holder's name; they are not renewed."""

    def __init__(self, owner: grpc.aio.Channel) -> None:
        self._stub: LeaseServiceAsyncStub = LeaseServiceStub(owner)

    async def session(
        self,
        session_id: str,
        holder: str,
        *,
        endpoint: str = "",
        role: str = "runner",
        ttl: float = LONG,
        takeover_token: int = 0,
    ) -> lease_pb2.AcquireLeaseResponse:
        """The lease of a session of the project `default`."""
        resource = resource_of("default", session_id)
        return await self._take(resource, holder, endpoint, {"role": role}, ttl, takeover_token)

    async def runner(
        self,
        name: str,
        endpoint: str,
        *,
        pool: str = "default",
        capacity: int = 10,
        profiles: str = "demo",
        networked: str = "",
        ttl: float = LONG,
    ) -> lease_pb2.AcquireLeaseResponse:
        """The registration of a runner, whose holder is `<name>/1`."""
        labels = {
            "role": "runner",
            "pool": pool,
            "capacity": str(capacity),
            "profiles": profiles,
            "networked": networked,
        }
        return await self._take(f"runners/{name}", f"{name}/1", endpoint, labels, ttl)

    async def release(self, lease: lease_pb2.Lease) -> None:
        """Give a lease back."""
        await self._stub.ReleaseLease(
            lease_pb2.ReleaseLeaseRequest(resource=lease.resource, holder=lease.holder, token=lease.token)
        )

    async def read(self, session_id: str) -> lease_pb2.Lease:
        """A session's lease as it stands."""
        request = lease_pb2.GetLeaseRequest(resource=resource_of("default", session_id))
        return (await self._stub.GetLease(request)).lease

    async def _take(
        self,
        resource: str,
        holder: str,
        endpoint: str,
        labels: dict[str, str],
        ttl: float,
        takeover_token: int = 0,
    ) -> lease_pb2.AcquireLeaseResponse:
        lasts = Duration()
        lasts.FromMilliseconds(round(ttl * 1000))
        request = lease_pb2.AcquireLeaseRequest(
            resource=resource,
            holder=holder,
            endpoint=endpoint,
            labels=labels,
            ttl=lasts,
            takeover_token=takeover_token,
        )
        return await self._stub.AcquireLease(request)
