"""A workspace service with containers as processes of this run, and the engine beside it, called bare."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import secrets
import shutil
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import docker
import grpc
from google.protobuf.duration_pb2 import Duration
from moorage.common.v1 import provision_pb2
from moorage.common.v1.grant_pb2 import Grant
from moorage.owner.v1 import lease_pb2
from moorage.owner.v1.lease_pb2_grpc import LeaseServiceStub
from moorage.workspace.v1 import workspace_pb2
from moorage.workspace.v1.workspace_pb2_grpc import WorkspaceServiceStub

from bench.harness.places import database
from services.cli.ports import choose
from services.cli.supervisor import ServiceSpec, Supervisor
from services.common.channels import open_channel

if TYPE_CHECKING:
    from moorage.owner.v1.lease_pb2_grpc import LeaseServiceAsyncStub
    from moorage.workspace.v1.workspace_pb2_grpc import WorkspaceServiceAsyncStub

IMAGE = "moorage-test:busybox"
_PROJECT = "default"
_PATIENCE = 60.0


def engine_address() -> str:
    """Of the engine that is measured."""
    return os.environ.get("DOCKER_HOST", "unix:///var/run/docker.sock")


def why_not() -> str:
    """Why nothing can be measured here; empty when it can."""
    if shutil.which("docker") is None:
        return "no docker command here"
    try:
        with contextlib.closing(docker.DockerClient(engine_address(), timeout=10)) as client:
            client.images.get(IMAGE)
    except docker.errors.DockerException as error:
        return f"no engine with the image {IMAGE} at {engine_address()}: {error}"
    return ""


class Dock:
    """Workspaces in containers, as a runner uses them."""

    def __init__(self, owner: grpc.aio.Channel, workspace: grpc.aio.Channel) -> None:
        self._leases: LeaseServiceAsyncStub = LeaseServiceStub(owner)
        self._workspaces: WorkspaceServiceAsyncStub = WorkspaceServiceStub(workspace)
        self._numbers = itertools.count()

    async def lease(self) -> tuple[str, Grant]:
        """A new session and its grant, which outlives the run."""
        session_id = f"bench{next(self._numbers)}"
        request = lease_pb2.AcquireLeaseRequest(
            resource=f"projects/{_PROJECT}/sessions/{session_id}",
            holder="bench/1",
            ttl=Duration(seconds=3600),
            labels={"role": "runner"},
        )
        return session_id, (await self._leases.AcquireLease(request, timeout=_PATIENCE)).grant

    async def provision(self, session_id: str) -> None:
        """A container of its own; returns when commands can run in it."""
        spec = provision_pb2.ProvisionSpec(provider="docker")
        await self._workspaces.ProvisionWorkspace(
            workspace_pb2.ProvisionWorkspaceRequest(
                project=_PROJECT, workspace_id=session_id, session_id=session_id, provision=spec
            ),
            timeout=_PATIENCE,
        )
        request = workspace_pb2.GetWorkspaceRequest(project=_PROJECT, workspace_id=session_id, wait=True)
        made = (await self._workspaces.GetWorkspace(request, timeout=_PATIENCE)).workspace
        if made.state != workspace_pb2.WORKSPACE_STATE_READY:
            raise RuntimeError(f"the workspace is not ready: {made.state_reason}")

    async def run(self, session_id: str, grant: Grant, *command: str) -> int:
        """A command from its start to its end; the bytes that it wrote."""
        call = self._workspaces.Exec(timeout=_PATIENCE)
        start = workspace_pb2.ExecStart(
            grant=grant,
            project=_PROJECT,
            workspace_id=session_id,
            command=command,
            inherit_environment=["PATH"],
        )
        await call.write(workspace_pb2.ExecRequest(start=start))
        await call.done_writing()
        size, ended = 0, workspace_pb2.ExecEnded(exit_code=-1)
        async for message in call:
            size += len(message.stdout)
            if message.HasField("ended"):
                ended = message.ended
        if ended.exit_code != 0:
            raise RuntimeError(f"{command} ended otherwise: {ended}")
        return size

    async def remove(self, session_id: str) -> None:
        """All of it; returns when it is gone."""
        request = workspace_pb2.DeleteWorkspaceRequest(project=_PROJECT, workspace_id=session_id)
        await self._workspaces.DeleteWorkspace(request, timeout=_PATIENCE)
        await self._workspaces.GetWorkspace(
            workspace_pb2.GetWorkspaceRequest(project=_PROJECT, workspace_id=session_id, wait=True),
            timeout=_PATIENCE,
        )


@dataclass(frozen=True, slots=True)
class BareEngine:
    """The engine by its own command, and by its interface."""

    api: Any

    async def command(self, *arguments: str) -> bytes:
        """What the `docker` command says; an error when it fails."""
        process = await asyncio.create_subprocess_exec(
            *("docker", "--host", engine_address(), *arguments),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
        )
        said, _ = await process.communicate()
        if process.returncode:
            raise RuntimeError(f"docker {arguments[0]} ended with {process.returncode}")
        return said

    async def run(self) -> str:
        """A container with the bounds of a workspace's; its id."""
        bounds = ("--network=none", "--memory=512m", "--pids-limit=256", "--cpus=1", "--cap-drop=ALL")
        options = ("--security-opt=no-new-privileges", "--user=10001:10001", "--init")
        said = await self.command("run", "--detach", *bounds, *options, IMAGE, "sleep", "86400")
        return said.decode().strip()

    async def remove(self, container_id: str) -> None:
        """By force."""
        await self.command("rm", "--force", container_id)

    async def exec(self, container_id: str, command: Sequence[str]) -> None:
        """By its interface: create, start and read to the end, ask how it ended."""
        await asyncio.to_thread(self._exec, container_id, command)

    def _exec(self, container_id: str, command: Sequence[str]) -> None:
        made = self.api.exec_create(container_id, list(command))
        self.api.exec_start(made["Id"])
        if self.api.exec_inspect(made["Id"])["ExitCode"] != 0:
            raise RuntimeError(f"{command} ended otherwise")


@contextlib.asynccontextmanager
async def dock(directory: Path) -> AsyncIterator[tuple[Dock, BareEngine]]:
    """Both; the services are this run's alone."""
    addresses = choose({"owner": 0, "workspace": 0}, {})
    async with database(directory) as url, Supervisor(directory / "logs") as supervisor:
        for spec in _services(directory, addresses, url):
            await supervisor.start(spec)
        await supervisor.wait_ready()
        async with (
            open_channel(addresses["owner"]) as owner,
            open_channel(addresses["workspace"]) as workspace,
        ):
            with contextlib.closing(docker.DockerClient(engine_address(), timeout=60)) as client:
                yield Dock(owner, workspace), BareEngine(client.api)


def _services(directory: Path, addresses: dict[str, str], url: str) -> list[ServiceSpec]:
    variables = {"MOORAGE_DATABASE_URL": url}
    (directory / "root").mkdir()
    workspace = (
        *("--listen", addresses["workspace"], "--owner-address", addresses["owner"]),
        *("--instance-id", f"bench-{secrets.token_hex(4)}", "--root", str(directory / "root")),
        *("--state-directory", str(directory / "state"), "--docker-host", engine_address()),
        *("--docker-images", f'["{IMAGE}"]'),
    )
    return [
        ServiceSpec("owner", addresses["owner"], ("--listen", addresses["owner"]), variables),
        ServiceSpec("workspace", addresses["workspace"], workspace, variables),
    ]
