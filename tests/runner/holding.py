"""What tests ask of runners and owner: deliveries as the session service makes them, leases, agents."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import grpc
from moorage.owner.v1 import lease_pb2
from moorage.owner.v1.lease_pb2_grpc import LeaseServiceStub
from moorage.runner.v1 import runner_pb2
from moorage.runner.v1.runner_pb2_grpc import RunnerServiceStub

from services.common.channels import open_channel
from services.common.status import from_rpc_error

if TYPE_CHECKING:
    from moorage.runner.v1.runner_pb2_grpc import RunnerServiceAsyncStub

ACCEPTED = runner_pb2.DELIVERY_RESULT_ACCEPTED
NOT_HELD = runner_pb2.DELIVERY_RESULT_NOT_HELD


class Deliveries:
    """Calls a runner; refusals are raised as error kinds."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self._stub: RunnerServiceAsyncStub = RunnerServiceStub(channel)

    async def dispatch(self, session_id: str, turn_id: str) -> runner_pb2.DispatchResult.ValueType:
        request = runner_pb2.DispatchTurnRequest(project="default", session_id=session_id, turn_id=turn_id)
        return (await self._stub.DispatchTurn(request, timeout=20)).result

    async def stop(
        self, session_id: str, turn_id: str, *, project: str = "default", traceparent: str = ""
    ) -> runner_pb2.DeliveryResult.ValueType:
        request = runner_pb2.DeliverStopRequest(
            project=project, session_id=session_id, turn_id=turn_id, command_id="c1", traceparent=traceparent
        )
        return (await self._stub.DeliverStop(request, timeout=20)).result

    async def settle(
        self, session_id: str, turn_id: str, attempt_id: str
    ) -> runner_pb2.DeliveryResult.ValueType:
        request = runner_pb2.SettleTurnRequest(
            project="default", session_id=session_id, turn_id=turn_id, attempt_id=attempt_id
        )
        try:
            return (await self._stub.SettleTurn(request, timeout=20)).result
        except grpc.aio.AioRpcError as error:
            raise from_rpc_error(error) from error

    async def end_runtime(self, session_id: str) -> bool:
        request = runner_pb2.EndRuntimeRequest(project="default", session_id=session_id)
        try:
            return (await self._stub.EndRuntime(request, timeout=20)).ended
        except grpc.aio.AioRpcError as error:
            raise from_rpc_error(error) from error


@asynccontextmanager
async def delivering(endpoint: str) -> AsyncIterator[Deliveries]:
    """To the runner at this endpoint."""
    async with open_channel(endpoint) as channel:
        yield Deliveries(channel)


async def live_leases(owner: str, prefix: str = "projects/") -> list[str]:
    """The resources of live leases."""
    async with open_channel(owner) as channel:
        request = lease_pb2.ListLeasesRequest(prefix=prefix, live_only=True)
        return [lease.resource for lease in (await LeaseServiceStub(channel).ListLeases(request)).leases]


def pid_in(said: str) -> int:
    """What the agent told of its process."""
    return int(said.partition("pid ")[2].split()[0])


def native_in(said: str) -> str:
    """What the agent told of its native session."""
    return said.partition("session ")[2].split()[0]
