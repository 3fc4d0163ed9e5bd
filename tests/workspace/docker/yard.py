"""An instance that makes containers, and what its engine has of them."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import docker
from moorage.common.v1 import provision_pb2
from moorage.workspace.v1 import workspace_pb2

from services.workspace.docker.labels import PREFIX
from services.workspace.server import WorkspaceInstance
from tests.engines import BUSYBOX
from tests.workspace.instances import PROJECT, Client, Machine, running

DOCKER = provision_pb2.ProvisionSpec(provider="docker")
MISSING = "moorage-test:missing"


@dataclass(frozen=True, slots=True)
class Yard:
    """A machine, and the address of its engine."""

    machine: Machine
    address: str

    @property
    def settings(self) -> dict[str, Any]:
        """Of an instance."""
        return {
            "docker_host": self.address,
            "docker_images": (BUSYBOX, MISSING),
            "docker_memory": 64 * 1024 * 1024,
            "docker_pids": 64,
        }

    @contextlib.asynccontextmanager
    async def running(self, **changes: Any) -> AsyncIterator[tuple[Client, WorkspaceInstance]]:
        """A ready instance and a client of it."""
        async with running(self.machine, **{**self.settings, **changes}) as both:
            yield both

    async def ask(self, what: str, *arguments: Any, **named: Any) -> Any:
        """Call a method of the engine's client, past the service."""
        return await asyncio.to_thread(self._ask, what, arguments, named)

    async def containers(self, workspace_id: str | None = None) -> list[dict[str, Any]]:
        """What the engine lists of this machine's instance, whatever its state."""
        found = await self.ask(
            "containers", all=True, filters={"label": f"{PREFIX}instance={self.machine.instance_id}"}
        )
        return [each for each in found if workspace_id in (None, each["Labels"][f"{PREFIX}workspace"])]

    async def inspect(self, workspace_id: str = "w1") -> dict[str, Any]:
        """The only container of a workspace."""
        (found,) = await self.containers(workspace_id)
        inspected: dict[str, Any] = await self.ask("inspect_container", found["Id"])
        return inspected

    async def clear(self) -> None:
        """Remove all that tests have left."""
        for each in await self.containers():
            with contextlib.suppress(docker.errors.NotFound):
                await self.ask("remove_container", each["Id"], force=True, v=True)

    def directory(self, workspace_id: str = "w1") -> Path:
        """Of a workspace that is made."""
        return self.machine.state / PROJECT / workspace_id

    @property
    def helper(self) -> Path:
        """The directory that all containers have the helper from."""
        return self.machine.state / ".helper" / self.machine.instance_id

    def _ask(self, what: str, arguments: Any, named: Any) -> Any:
        with contextlib.closing(docker.DockerClient(self.address, timeout=60)) as client:
            return getattr(client.api, what)(*arguments, **named)


async def make(client: Client, workspace_id: str = "w1", **spec: Any) -> workspace_pb2.Workspace:
    """A container, settled."""
    await client.provision(workspace_id, provision=provision_pb2.ProvisionSpec(provider="docker", **spec))
    return await client.settled(workspace_id)
