"""The owner service as a process with a durable database, and a holder that calls it."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import AsyncIterator
from pathlib import Path

import grpc
from moorage.owner.v1 import lease_pb2

from bench.harness.places import database
from services.cli.ports import choose
from services.cli.supervisor import ServiceSpec, Supervisor
from services.common.channels import open_channel
from services.fencing.client import LeaseClient
from services.fencing.loop import mint_holder

_TTL = 3600
_PATIENCE = 30.0
_AT_ONCE = 20


class Holder:
    """A holder without a loop: it renews what it is told to."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self.name = mint_holder("bench")
        self._client = LeaseClient(channel)
        self._numbers = itertools.count()

    async def acquire_batches(self, leases: int, size: int) -> list[lease_pb2.RenewLeasesRequest]:
        """Take so many leases; the requests that renew them, `size` in each."""
        renewals: list[lease_pb2.LeaseRenewal] = []
        for start in range(0, leases, _AT_ONCE):
            names = [f"batches/{number}" for number in range(start, min(start + _AT_ONCE, leases))]
            renewals += [
                lease_pb2.LeaseRenewal(resource=lease.resource, token=lease.token)
                for lease in await asyncio.gather(*map(self._acquire, names))
            ]
        return [
            lease_pb2.RenewLeasesRequest(holder=self.name, renewals=renewals[start : start + size])
            for start in range(0, leases, size)
        ]

    async def renew(self, request: lease_pb2.RenewLeasesRequest) -> int:
        """How many were renewed."""
        response = await self._client.renew(request, _PATIENCE)
        if any(result.state != lease_pb2.RENEWAL_STATE_RENEWED for result in response.results):
            raise RuntimeError("a lease of the bench was lost")
        return len(response.results)

    async def acquire_and_release(self, resource: str) -> int:
        """As a runner does with a session that it does not keep warm."""
        lease = await self._acquire(resource)
        request = lease_pb2.ReleaseLeaseRequest(resource=resource, holder=self.name, token=lease.token)
        await self._client.release(request, _PATIENCE)
        return 1

    async def _acquire(self, resource: str) -> lease_pb2.Lease:
        request = lease_pb2.AcquireLeaseRequest(
            resource=resource,
            holder=self.name,
            labels={"role": "runner"},
            request_id=f"{self.name}-{next(self._numbers)}",
        )
        request.ttl.seconds = _TTL
        return (await self._client.acquire(request, _PATIENCE)).lease


@contextlib.asynccontextmanager
async def owner(directory: Path) -> AsyncIterator[Holder]:
    """A holder that calls an owner process; both are this run's alone."""
    address = choose({"owner": 0}, {})["owner"]
    async with database(directory) as url, Supervisor(directory / "logs") as supervisor:
        await supervisor.start(
            ServiceSpec("owner", address, ("--listen", address), {"MOORAGE_DATABASE_URL": url})
        )
        await supervisor.wait_ready()
        async with open_channel(address) as channel:
            yield Holder(channel)
