"""Instances of the workspace service in this process, on real databases and directories."""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import AsyncIterator, Awaitable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeVar

import grpc
from google.protobuf.duration_pb2 import Duration
from moorage.common.v1 import provision_pb2
from moorage.common.v1.binding_pb2 import Binding, LocalBinding
from moorage.common.v1.grant_pb2 import Grant
from moorage.owner.v1 import lease_pb2
from moorage.owner.v1.lease_pb2_grpc import LeaseServiceStub
from moorage.workspace.v1 import workspace_pb2
from moorage.workspace.v1.workspace_pb2_grpc import WorkspaceServiceStub

from services.common.channels import open_channel
from services.common.status import from_rpc_error
from services.owner.config import OwnerSettings
from services.owner.server import build as build_owner
from services.workspace.config import WorkspaceSettings
from services.workspace.server import WorkspaceInstance, build
from tests.conditions import eventually
from tests.workspace.streams import Stream, Streaming

if TYPE_CHECKING:
    from moorage.owner.v1.lease_pb2_grpc import LeaseServiceAsyncStub
    from moorage.workspace.v1.workspace_pb2_grpc import WorkspaceServiceAsyncStub

T = TypeVar("T")

FREE = "127.0.0.1:0"
PROJECT = "default"
SESSION = "s1"
PATIENCE = 20.0


@dataclass(frozen=True, slots=True)
class Machine:
    """Where an instance lives: its database, its owner and its directories."""

    database_url: str
    owner_address: str
    directory: Path
    # Tests that run at the same time on one machine do not mistake each other's processes for their own.
    instance_id: str = field(default_factory=lambda: f"i{secrets.token_hex(4)}")

    @property
    def root(self) -> Path:
        """Supplied directories lie in it."""
        return self.directory / "root"

    @property
    def state(self) -> Path:
        """Provisioned directories lie in it."""
        return self.directory / "state"

    def settings(self, **changes: Any) -> WorkspaceSettings:
        """Settings of an instance with quick retries."""
        values: dict[str, Any] = {
            "listen": FREE,
            "database_url": self.database_url,
            "owner_address": self.owner_address,
            "instance_id": self.instance_id,
            "root": self.root,
            "state_directory": self.state,
            "shutdown_grace": 0.5,
            "first_retry": 0.02,
            "longest_retry": 0.05,
            "predecessor_grace": 0.5,
        }
        return WorkspaceSettings(**{**values, **changes})

    def supplied(self, name: str = "code") -> Path:
        """A directory to bring along, for everybody to write in: in a container nobody is root."""
        path = self.root / name
        path.mkdir(exist_ok=True)
        path.chmod(0o777)
        return path


class Client:
    """Calls one instance; refusals are raised as error kinds."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self.channel = channel
        self.stub: WorkspaceServiceAsyncStub = WorkspaceServiceStub(channel)

    @classmethod
    def at(cls, endpoint: str) -> Self:
        """A client of whoever serves there."""
        return cls(open_channel(endpoint))

    async def provision(
        self, workspace_id: str = "w1", *, session_id: str = SESSION, project: str = PROJECT, **source: Any
    ) -> workspace_pb2.ProvisionWorkspaceResponse:
        request = workspace_pb2.ProvisionWorkspaceRequest(
            project=project, workspace_id=workspace_id, session_id=session_id, **source
        )
        return await told(self.stub.ProvisionWorkspace(request, timeout=PATIENCE))

    async def make(self, workspace_id: str = "w1", **names: str) -> workspace_pb2.Workspace:
        """A new directory, ready."""
        await self.provision(workspace_id, provision=provision_pb2.ProvisionSpec(), **names)
        return await self.settled(workspace_id, project=names.get("project", PROJECT))

    async def adopt(self, directory: Path, workspace_id: str = "w1", **names: str) -> workspace_pb2.Workspace:
        """A supplied directory, ready."""
        return (await self.provision(workspace_id, binding=local(directory), **names)).workspace

    async def get(
        self,
        workspace_id: str = "w1",
        *,
        project: str = PROJECT,
        wait: bool = False,
        timeout: float = PATIENCE,
    ) -> workspace_pb2.Workspace:
        request = workspace_pb2.GetWorkspaceRequest(project=project, workspace_id=workspace_id, wait=wait)
        return (await told(self.stub.GetWorkspace(request, timeout=timeout))).workspace

    async def settled(self, workspace_id: str = "w1", *, project: str = PROJECT) -> workspace_pb2.Workspace:
        return await self.get(workspace_id, project=project, wait=True)

    async def list_page(self, project: str = PROJECT, **page: Any) -> workspace_pb2.ListWorkspacesResponse:
        request = workspace_pb2.ListWorkspacesRequest(project=project, **page)
        return await told(self.stub.ListWorkspaces(request))

    async def delete(self, workspace_id: str = "w1", *, project: str = PROJECT) -> workspace_pb2.Workspace:
        request = workspace_pb2.DeleteWorkspaceRequest(project=project, workspace_id=workspace_id)
        return (await told(self.stub.DeleteWorkspace(request))).workspace

    async def resolve(
        self, binding: Binding, workspace_id: str = "w1", project: str = PROJECT
    ) -> workspace_pb2.ResolveBindingResponse:
        request = workspace_pb2.ResolveBindingRequest(
            project=project, workspace_id=workspace_id, binding=binding
        )
        return await told(self.stub.ResolveBinding(request))

    async def claim(
        self,
        grant: Grant | None,
        workspace_id: str = "w1",
        *,
        keep: str = "",
        project: str = PROJECT,
        timeout: float = PATIENCE,
    ) -> workspace_pb2.ClaimWorkspaceResponse:
        request = workspace_pb2.ClaimWorkspaceRequest(
            grant=grant, project=project, workspace_id=workspace_id, keep_exec_id=keep
        )
        return await told(self.stub.ClaimWorkspace(request, timeout=timeout))

    async def collect(self, **request: Any) -> workspace_pb2.CollectGarbageResponse:
        """One pass of the collector."""
        message = workspace_pb2.CollectGarbageRequest(**request)
        return await told(self.stub.CollectGarbage(message, timeout=PATIENCE))

    def exec(self, grant: Grant | None, *command: str, workspace_id: str = "w1", **start: Any) -> Streaming:
        """A command's stream, to be entered."""
        values: dict[str, Any] = {"inherit_environment": ["PATH"], "project": PROJECT, **start}
        message = workspace_pb2.ExecStart(grant=grant, workspace_id=workspace_id, command=command, **values)
        return Streaming(Stream(self.stub.Exec(), message))


class Holder:
    """A process that holds leases of sessions, through the real owner."""

    def __init__(self, channel: grpc.aio.Channel, name: str = "runner/1") -> None:
        self.name = name
        self._stub: LeaseServiceAsyncStub = LeaseServiceStub(channel)

    async def acquire(self, session_id: str = SESSION, *, ttl: float = 60.0, project: str = PROJECT) -> Grant:
        request = lease_pb2.AcquireLeaseRequest(
            resource=resource(session_id, project),
            holder=self.name,
            ttl=duration(ttl),
            labels={"role": "runner"},
        )
        return (await told(self._stub.AcquireLease(request))).grant

    async def renew(self, token: int, session_id: str = SESSION) -> Grant:
        renewal = lease_pb2.LeaseRenewal(resource=resource(session_id), token=token)
        request = lease_pb2.RenewLeasesRequest(holder=self.name, renewals=[renewal])
        return (await told(self._stub.RenewLeases(request))).results[0].grant

    async def release(self, token: int, session_id: str = SESSION) -> None:
        request = lease_pb2.ReleaseLeaseRequest(resource=resource(session_id), holder=self.name, token=token)
        await told(self._stub.ReleaseLease(request))

    async def next(self, token: int, session_id: str = SESSION, *, ttl: float = 60.0) -> Grant:
        """Release, and acquire again: the next token."""
        await self.release(token, session_id)
        return await self.acquire(session_id, ttl=ttl)


def resource(session_id: str = SESSION, project: str = PROJECT) -> str:
    return f"projects/{project}/sessions/{session_id}"


def local(directory: Path | str) -> Binding:
    return Binding(local=LocalBinding(directory=str(directory)))


def duration(seconds: float) -> Duration:
    message = Duration()
    message.FromNanoseconds(round(seconds * 1e9))
    return message


async def told(call: Awaitable[T]) -> T:
    try:
        return await call
    except grpc.aio.AioRpcError as error:
        raise from_rpc_error(error) from error


@contextlib.asynccontextmanager
async def running_owner(database_url: str, listen: str = FREE) -> AsyncIterator[str]:
    """A ready owner with leases as short as tests need."""
    settings = OwnerSettings(listen=listen, database_url=database_url, min_ttl=0.5, shutdown_grace=0.5)
    async with build_owner(settings).running() as endpoint:
        yield endpoint


@contextlib.asynccontextmanager
async def running(machine: Machine, **changes: Any) -> AsyncIterator[tuple[Client, WorkspaceInstance]]:
    """A ready instance and a client of it."""
    instance = build(machine.settings(**changes))
    async with instance.running() as endpoint, open_channel(endpoint) as channel:
        # What a test makes is not for the pass that follows the start.
        await eventually(lambda: instance.collector.passes > 0)
        yield Client(channel), instance
