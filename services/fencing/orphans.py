"""Requests for leases whose answer nobody received: what they may have got is given back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from moorage.owner.v1 import lease_pb2

from services.common.clock import Clock
from services.common.errors import MoorageError
from services.fencing.alarm import Alarm
from services.fencing.client import UNCERTAIN, LeaseClient

_TIMEOUT: Final = 5.0
_LATE: Final = 10.0


@dataclass(frozen=True, slots=True)
class _Orphan:
    request: lease_pb2.AcquireLeaseRequest
    forgotten_at: float


class Orphans:
    """Repeats each such request, which finds the lease it may have got, and releases that."""

    def __init__(self, client: LeaseClient, clock: Clock) -> None:
        """Calls owner by this client."""
        self._client = client
        self._clock = clock
        self._added = Alarm(clock)
        self._orphans: dict[str, _Orphan] = {}

    def add(self, request: lease_pb2.AcquireLeaseRequest) -> None:
        """Take over a request; once its lease has ended by itself there is nothing to give back."""
        ends_at = self._clock.boottime() + request.ttl.ToMilliseconds() / 1000
        self._orphans[request.request_id] = _Orphan(request, ends_at + _LATE)
        self._added.move()

    async def step(self) -> None:
        """Wait for requests and settle them; fails while owner is away."""
        await self._added.wait(lambda: float("-inf") if self._orphans else float("inf"))
        for orphan in list(self._orphans.values()):
            await self._settle(orphan)

    async def settle(self, resource: str) -> None:
        """Settle those for one resource, so that a new request is not refused because of them."""
        for orphan in [each for each in self._orphans.values() if each.request.resource == resource]:
            await self._settle(orphan)

    async def _settle(self, orphan: _Orphan) -> None:
        try:
            response = await self._client.acquire(orphan.request, _TIMEOUT)
            await self._client.release(naming(response.lease), _TIMEOUT)
        except UNCERTAIN:
            if self._clock.boottime() < orphan.forgotten_at:
                raise
        except MoorageError:
            # It got nothing, or its lease has ended.
            pass
        self._orphans.pop(orphan.request.request_id, None)


def naming(lease: lease_pb2.Lease) -> lease_pb2.ReleaseLeaseRequest:
    """The request that releases a lease."""
    return lease_pb2.ReleaseLeaseRequest(resource=lease.resource, holder=lease.holder, token=lease.token)
