"""Calls to owner, each bounded in time and failing as one of the error kinds."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

import grpc
from moorage.owner.v1 import lease_pb2
from moorage.owner.v1.lease_pb2_grpc import LeaseServiceStub

from services.common.errors import Cancelled, DeadlineExceeded, Internal, Unavailable
from services.common.status import from_rpc_error

# Of these nobody can tell whether the call took effect; all calls of this client may be repeated.
UNCERTAIN: Final = (Unavailable, DeadlineExceeded, Cancelled, Internal)

RequestT = TypeVar("RequestT")
ResponseT = TypeVar("ResponseT")


class LeaseClient:
    """LeaseService as a holder and a verifier call it; every timeout is in seconds."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        """The channel leads to owner, to as many replicas as there are."""
        self._stub = LeaseServiceStub(channel)

    async def acquire(
        self, request: lease_pb2.AcquireLeaseRequest, timeout: float
    ) -> lease_pb2.AcquireLeaseResponse:
        """AcquireLease."""
        return await _call(self._stub.AcquireLease, request, timeout)

    async def renew(
        self, request: lease_pb2.RenewLeasesRequest, timeout: float
    ) -> lease_pb2.RenewLeasesResponse:
        """RenewLeases."""
        return await _call(self._stub.RenewLeases, request, timeout)

    async def release(
        self, request: lease_pb2.ReleaseLeaseRequest, timeout: float
    ) -> lease_pb2.ReleaseLeaseResponse:
        """ReleaseLease."""
        return await _call(self._stub.ReleaseLease, request, timeout)

    async def list_keys(self, timeout: float) -> lease_pb2.ListGrantKeysResponse:
        """ListGrantKeys."""
        return await _call(self._stub.ListGrantKeys, lease_pb2.ListGrantKeysRequest(), timeout)


async def _call(method: Callable[..., Awaitable[ResponseT]], request: RequestT, timeout: float) -> ResponseT:
    try:
        return await method(request, timeout=timeout)
    except grpc.aio.AioRpcError as error:
        raise from_rpc_error(error) from error
    except asyncio.CancelledError:
        # A call also ends so when its channel is closed: then nobody asked this task to end.
        if _is_being_cancelled():
            raise
        raise Cancelled from None


def _is_being_cancelled() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
