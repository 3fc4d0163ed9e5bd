"""Calls to workspaces, each at the instance that carries the workspace."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final, TypeVar

import grpc
from moorage.common.v1.binding_pb2 import Binding
from moorage.common.v1.errors_pb2 import ErrorReason
from moorage.common.v1.grant_pb2 import Grant
from moorage.workspace.v1 import workspace_pb2
from moorage.workspace.v1.workspace_pb2_grpc import WorkspaceServiceStub

from services.common.channels import Channels
from services.common.errors import MoorageError
from services.common.status import from_dependency

if TYPE_CHECKING:
    from moorage.workspace.v1.workspace_pb2_grpc import WorkspaceServiceAsyncStub

# An instance may have moved between the answer and the call that follows it.
_REDIRECTIONS: Final = 3

T = TypeVar("T")


class Workspaces:
    """The workspace service as a holder calls it. Every method raises the kinds of `errors`."""

    def __init__(self, channels: Channels, address: str, timeout: float) -> None:
        """`address` leads to any instance; `timeout` bounds a call, in seconds."""
        self._channels = channels
        self._address = address
        self._timeout = timeout

    async def resolve(
        self, project: str, workspace_id: str, binding: Binding
    ) -> workspace_pb2.ResolveBindingResponse:
        """Where the tools of a stored binding run. The only place that asks (T10)."""
        request = workspace_pb2.ResolveBindingRequest(
            project=project, workspace_id=workspace_id, binding=binding
        )
        return await self._at_instance(
            self._address, lambda stub: stub.ResolveBinding(request, timeout=self._timeout)
        )

    async def wait_settled(self, project: str, workspace_id: str) -> None:
        """Return when the workspace is neither being made nor being removed, or after a while."""
        request = workspace_pb2.GetWorkspaceRequest(project=project, workspace_id=workspace_id, wait=True)
        await self._at_instance(self._address, lambda stub: stub.GetWorkspace(request, timeout=self._timeout))

    async def get(self, project: str, workspace_id: str) -> workspace_pb2.Workspace:
        """The workspace as it stands, and how its set-up command ended."""
        request = workspace_pb2.GetWorkspaceRequest(project=project, workspace_id=workspace_id)
        found = await self._at_instance(
            self._address, lambda stub: stub.GetWorkspace(request, timeout=self._timeout)
        )
        return found.workspace

    async def claim(
        self, endpoint: str, grant: Grant, project: str, workspace_id: str, keep_exec_id: str = ""
    ) -> None:
        """Raise the fence; afterwards all processes of the session but the named one are dead."""
        request = workspace_pb2.ClaimWorkspaceRequest(
            grant=grant, project=project, workspace_id=workspace_id, keep_exec_id=keep_exec_id
        )
        await self._at_instance(endpoint, lambda stub: stub.ClaimWorkspace(request, timeout=self._timeout))

    async def read_file(
        self, endpoint: str, request: workspace_pb2.ReadFileRequest
    ) -> workspace_pb2.ReadFileResponse:
        """A part of a file."""
        return await self._at_instance(endpoint, lambda stub: stub.ReadFile(request, timeout=self._timeout))

    async def write_file(self, endpoint: str, request: workspace_pb2.WriteFileRequest) -> None:
        """Replace or make a file."""
        await self._at_instance(endpoint, lambda stub: stub.WriteFile(request, timeout=self._timeout))

    async def _at_instance(
        self, endpoint: str, call: Callable[[WorkspaceServiceAsyncStub], Awaitable[T]]
    ) -> T:
        for _ in range(_REDIRECTIONS):
            try:
                return await self._call(endpoint, call)
            except MoorageError as error:
                moved = error.reason == ErrorReason.ERROR_REASON_WRONG_INSTANCE
                elsewhere = error.metadata.get("endpoint", "")
                if not moved or not elsewhere:
                    raise
                endpoint = elsewhere
        return await self._call(endpoint, call)

    async def _call(self, endpoint: str, call: Callable[[WorkspaceServiceAsyncStub], Awaitable[T]]) -> T:
        try:
            return await call(WorkspaceServiceStub(self._channels.to(endpoint)))
        except grpc.aio.AioRpcError as error:
            raise from_dependency("workspace", error) from error
