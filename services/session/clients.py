"""Calls to owner, workspace and runners: small, typed, bounded in time, failing as error kinds."""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import TYPE_CHECKING, Final, TypeVar

import grpc
from moorage.common.v1.errors_pb2 import ErrorReason
from moorage.common.v1.grant_pb2 import Grant
from moorage.owner.v1 import lease_pb2
from moorage.owner.v1.lease_pb2_grpc import LeaseServiceStub
from moorage.runner.v1 import runner_pb2
from moorage.runner.v1.runner_pb2_grpc import RunnerServiceStub
from moorage.workspace.v1 import workspace_pb2
from moorage.workspace.v1.workspace_pb2_grpc import WorkspaceServiceStub

from services.common.channels import Channels
from services.common.errors import FailedPrecondition, InvalidArgument, NotFound
from services.common.status import from_dependency
from services.session.commands import StopClaim
from services.session.interactions import AnswerClaim
from services.session.journal.rules import SessionKey

if TYPE_CHECKING:
    from moorage.owner.v1.lease_pb2_grpc import LeaseServiceAsyncStub
    from moorage.runner.v1.runner_pb2_grpc import RunnerServiceAsyncStub
    from moorage.workspace.v1.workspace_pb2_grpc import WorkspaceServiceAsyncStub

ResponseT = TypeVar("ResponseT")

_OWNER_TIMEOUT: Final = 5.0
_RUNNER_TIMEOUT: Final = 5.0
_DELIVERY_TIMEOUT: Final = 3.0
_PROVISION_TIMEOUT: Final = 20.0
_WORKSPACE_TIMEOUT: Final = 5.0
_PAGE_SIZE: Final = 1000
_DRIVER: Final = "runner"
# Holders whose endpoints are kept in mind.
_REMEMBERED: Final = 1000


class Leases:
    """What is known about leases (owner)."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        """The channel leads to owner."""
        self._stub: LeaseServiceAsyncStub = LeaseServiceStub(channel)
        self._endpoints: dict[str, str] = {}

    def endpoint_of(self, holder: str) -> str:
        """Where a holder serves as far as its leases told; empty when none was seen.

        A holder is one start of a process, thus it has one endpoint for ever.
        """
        return self._endpoints.get(holder, "")

    async def get(self, resource: str, *, timeout: float = _OWNER_TIMEOUT) -> lease_pb2.Lease | None:
        """The lease as it stands, also one that has ended; None when none was ever granted."""
        request = lease_pb2.GetLeaseRequest(resource=resource)
        try:
            response = await _call("owner", self._stub.GetLease(request, timeout=timeout))
        except NotFound:
            return None
        self._remember(response.lease)
        return response.lease

    async def driver(self, resource: str, *, timeout: float = _OWNER_TIMEOUT) -> lease_pb2.Lease | None:
        """The live lease of the runner that drives a session; a service's lease does not count."""
        lease = await self.get(resource, timeout=timeout)
        return lease if lease and lease.live and lease.labels.get("role") == _DRIVER else None

    async def list_live(self, prefix: str) -> list[lease_pb2.Lease]:
        """All leases in force whose resource begins with `prefix`."""
        leases: list[lease_pb2.Lease] = []
        request = lease_pb2.ListLeasesRequest(prefix=prefix, live_only=True, page_size=_PAGE_SIZE)
        while True:
            page = await _call("owner", self._stub.ListLeases(request, timeout=_OWNER_TIMEOUT))
            leases.extend(page.leases)
            for lease in page.leases:
                self._remember(lease)
            if not page.next_page_token:
                return leases
            request.page_token = page.next_page_token

    def _remember(self, lease: lease_pb2.Lease) -> None:
        if lease.live and lease.endpoint:
            self._endpoints.pop(lease.holder, None)
            self._endpoints[lease.holder] = lease.endpoint
        if len(self._endpoints) > _REMEMBERED:
            del self._endpoints[next(iter(self._endpoints))]


class Runners:
    """What runners are asked to do, each at the endpoint of its lease."""

    def __init__(self, channels: Channels) -> None:
        """The process's channels."""
        self._channels = channels

    async def dispatch(
        self, endpoint: str, project: str, session_id: str, turn_id: str, traceparent: str
    ) -> runner_pb2.DispatchTurnResponse:
        """Offer a turn; the answer says whether the runner takes it."""
        request = runner_pb2.DispatchTurnRequest(
            project=project, session_id=session_id, turn_id=turn_id, traceparent=traceparent
        )
        return await _call("runner", self._stub(endpoint).DispatchTurn(request, timeout=_RUNNER_TIMEOUT))

    async def deliver_stop(self, endpoint: str, stop: StopClaim) -> runner_pb2.DeliverStopResponse:
        """Tell the holder of a session to stop a turn."""
        request = runner_pb2.DeliverStopRequest(
            project=stop.key.project,
            session_id=stop.key.session_id,
            turn_id=stop.turn_id,
            command_id=stop.command_id,
            traceparent=stop.traceparent,
        )
        return await _call("runner", self._stub(endpoint).DeliverStop(request, timeout=_DELIVERY_TIMEOUT))

    async def settle_turn(
        self, endpoint: str, key: SessionKey, turn_id: str, attempt_id: str
    ) -> runner_pb2.SettleTurnResponse:
        """Make the holder of a session end a turn that it does not run, begun by this attempt."""
        request = runner_pb2.SettleTurnRequest(
            project=key.project, session_id=key.session_id, turn_id=turn_id, attempt_id=attempt_id
        )
        return await _call("runner", self._stub(endpoint).SettleTurn(request, timeout=_DELIVERY_TIMEOUT))

    async def list_executions(self, endpoint: str) -> runner_pb2.ListExecutionsResponse:
        """What the runner at this endpoint executes, and its holder name."""
        request = runner_pb2.ListExecutionsRequest()
        return await _call("runner", self._stub(endpoint).ListExecutions(request, timeout=_RUNNER_TIMEOUT))

    async def end_runtime(self, endpoint: str, project: str, session_id: str) -> None:
        """Make the holder of a session end the runtime that it keeps, and give the lease back."""
        request = runner_pb2.EndRuntimeRequest(project=project, session_id=session_id)
        await _call("runner", self._stub(endpoint).EndRuntime(request, timeout=_RUNNER_TIMEOUT))

    async def deliver_answer(self, endpoint: str, answer: AnswerClaim) -> runner_pb2.DeliverAnswerResponse:
        """Tell the holder of a session what was decided about a question."""
        request = runner_pb2.DeliverAnswerRequest(
            project=answer.project,
            session_id=answer.session_id,
            turn_id=answer.turn_id,
            interaction_id=answer.interaction_id,
            outcome=answer.state.outcome,
            option_id=answer.option_id,
            values=answer.values,
        )
        return await _call("runner", self._stub(endpoint).DeliverAnswer(request, timeout=_DELIVERY_TIMEOUT))

    def _stub(self, endpoint: str) -> RunnerServiceAsyncStub:
        stub: RunnerServiceAsyncStub = RunnerServiceStub(self._channels.to(endpoint))
        return stub


class Workspaces:
    """The workspaces of sessions."""

    def __init__(self, channels: Channels, address: str) -> None:
        """`address` leads to the workspace service, as a gRPC target."""
        self._channels = channels
        self._address = address

    async def provision(
        self, request: workspace_pb2.ProvisionWorkspaceRequest
    ) -> workspace_pb2.ProvisionWorkspaceResponse:
        """Store the intent of a workspace; what it refuses names fields of CreateSession."""
        stub = self._stub(self._address)
        try:
            return await _call("workspace", stub.ProvisionWorkspace(request, timeout=_PROVISION_TIMEOUT))
        except InvalidArgument as error:
            raise _as_asked(error) from error

    async def get(
        self, project: str, workspace_id: str, *, timeout: float = _WORKSPACE_TIMEOUT, wait: bool = False
    ) -> workspace_pb2.Workspace:
        """A workspace as it stands, or with `wait` when its state is settled."""
        request = workspace_pb2.GetWorkspaceRequest(project=project, workspace_id=workspace_id, wait=wait)
        response = await self._call_carrier(lambda stub: stub.GetWorkspace(request, timeout=timeout))
        return response.workspace

    async def claim(self, project: str, workspace_id: str, grant: Grant, *, timeout: float) -> None:
        """Raise the fence to this grant's token: afterwards nothing of the session lives there.

        In a workspace that was never made nothing does.
        """
        request = workspace_pb2.ClaimWorkspaceRequest(grant=grant, project=project, workspace_id=workspace_id)
        with contextlib.suppress(NotFound):
            await self._call_carrier(lambda stub: stub.ClaimWorkspace(request, timeout=timeout))

    async def delete(self, project: str, workspace_id: str, *, after: timedelta | None = None) -> None:
        """Have a workspace removed, now or so long after now; one that was never made is removed already."""
        request = workspace_pb2.DeleteWorkspaceRequest(project=project, workspace_id=workspace_id)
        if after is not None:
            request.after.FromTimedelta(after)
        try:
            await self._call_carrier(lambda stub: stub.DeleteWorkspace(request, timeout=_WORKSPACE_TIMEOUT))
        except NotFound:
            return

    async def _call_carrier(
        self, call: Callable[[WorkspaceServiceAsyncStub], Awaitable[ResponseT]]
    ) -> ResponseT:
        """Call the instance that carries the workspace, which another instance names."""
        try:
            return await _call("workspace", call(self._stub(self._address)))
        except FailedPrecondition as error:
            if error.reason != ErrorReason.ERROR_REASON_WRONG_INSTANCE:
                raise
            return await _call("workspace", call(self._stub(error.metadata["endpoint"])))

    def _stub(self, address: str) -> WorkspaceServiceAsyncStub:
        stub: WorkspaceServiceAsyncStub = WorkspaceServiceStub(self._channels.to(address))
        return stub


def _as_asked(error: InvalidArgument) -> InvalidArgument:
    """Of what clients send, only the oneof has another name in the workspace service."""
    for violation in error.violations:
        if violation.field == "source":
            return InvalidArgument.of("workspace", violation.description, reason=error.reason)
    return error


async def _call(dependency: str, call: Awaitable[ResponseT]) -> ResponseT:
    """The answer; what a service says goes on as it said it, its silence names the service."""
    try:
        return await call
    except grpc.aio.AioRpcError as error:
        raise from_dependency(dependency, error) from error
