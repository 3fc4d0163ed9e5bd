"""Replicas of owner in this process, on real databases, and holders that call them."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Mapping
from typing import Any, TypeAlias

import asyncpg
import grpc
from google.protobuf.duration_pb2 import Duration
from moorage.owner.v1 import lease_pb2
from moorage.owner.v1.lease_pb2_grpc import LeaseServiceStub

from services.common.channels import open_channel
from services.common.status import from_rpc_error
from services.fencing.client import LeaseClient
from services.owner.config import OwnerSettings
from services.owner.server import build

Connection: TypeAlias = "asyncpg.Connection[asyncpg.Record]"
RUNNER = {"role": "runner"}
SERVICE = {"role": "service"}
PATIENCE = 10.0


@contextlib.asynccontextmanager
async def serving(database_url: str, **settings: Any) -> AsyncIterator[str]:
    """A ready replica with leases as short as tests need; gives its endpoint."""
    chosen = {"listen": "127.0.0.1:0", "min_ttl": 0.05, "shutdown_grace": 0.5, **settings}
    async with build(OwnerSettings(database_url=database_url, **chosen)).running() as endpoint:
        yield endpoint


@contextlib.asynccontextmanager
async def replica(database_url: str, **settings: Any) -> AsyncIterator[grpc.aio.Channel]:
    """The same; gives a channel to it."""
    async with serving(database_url, **settings) as endpoint, open_channel(endpoint) as channel:
        yield channel


class Holder:
    """One process start as owner sees it; refusals are raised as error kinds."""

    def __init__(self, channel: grpc.aio.Channel, name: str) -> None:
        self.name = name
        self._client = LeaseClient(channel)
        self._stub = LeaseServiceStub(channel)

    async def acquire(
        self,
        resource: str,
        ttl: float | None = 30.0,
        *,
        request_id: str = "",
        endpoint: str = "",
        labels: Mapping[str, str] | None = None,
        takeover_token: int = 0,
    ) -> lease_pb2.AcquireLeaseResponse:
        request = lease_pb2.AcquireLeaseRequest(
            resource=resource,
            holder=self.name,
            ttl=None if ttl is None else duration(ttl),
            endpoint=endpoint,
            labels=RUNNER if labels is None else labels,
            request_id=request_id,
            takeover_token=takeover_token,
        )
        return await self._client.acquire(request, PATIENCE)

    async def take_over(
        self, resource: str, token: int, ttl: float = 30.0, *, request_id: str = ""
    ) -> lease_pb2.AcquireLeaseResponse:
        """Replace this token, as the session service does."""
        return await self.acquire(resource, ttl, request_id=request_id, labels=SERVICE, takeover_token=token)

    async def renew(self, *items: tuple[str, int]) -> list[lease_pb2.RenewalResult]:
        renewals = [lease_pb2.LeaseRenewal(resource=resource, token=token) for resource, token in items]
        request = lease_pb2.RenewLeasesRequest(holder=self.name, renewals=renewals)
        return list((await self._client.renew(request, PATIENCE)).results)

    async def release(self, resource: str, token: int) -> lease_pb2.Lease:
        request = lease_pb2.ReleaseLeaseRequest(resource=resource, holder=self.name, token=token)
        return (await self._client.release(request, PATIENCE)).lease

    async def get(self, resource: str) -> lease_pb2.Lease:
        try:
            return (await self._stub.GetLease(lease_pb2.GetLeaseRequest(resource=resource))).lease
        except grpc.aio.AioRpcError as error:
            raise from_rpc_error(error) from error

    async def list_leases(self, prefix: str = "", **options: Any) -> lease_pb2.ListLeasesResponse:
        try:
            return await self._stub.ListLeases(lease_pb2.ListLeasesRequest(prefix=prefix, **options))
        except grpc.aio.AioRpcError as error:
            raise from_rpc_error(error) from error

    async def keys(self) -> list[lease_pb2.GrantKey]:
        return list((await self._client.list_keys(PATIENCE)).keys)


def duration(seconds: float) -> Duration:
    message = Duration()
    message.FromNanoseconds(round(seconds * 1e9))
    return message


async def until_ended(connection: Connection, resource: str) -> None:
    """Return when the lease's time has passed, by the database's clock."""
    await connection.execute(
        "SELECT pg_sleep_until(expires_at) FROM owner.leases WHERE resource = $1", resource
    )
