"""The four services as processes around one directory, with the shared engine, and what a test looks at there."""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import docker
import grpc
import pytest
from docker.models.containers import Container
from google.protobuf.duration_pb2 import Duration
from moorage.common.v1 import provision_pb2
from moorage.session.v1 import session_pb2

from services.common.errors import MoorageError
from services.common.status import from_rpc_error
from tests.conditions import eventually
from tests.engines import containers_of
from tests.runner.talks import Talks
from tests.system.whole import Whole

DEMO = "moorage-test:demo"
NONE = provision_pb2.NETWORK_POLICY_NONE
BRIDGE = provision_pb2.NETWORK_POLICY_BRIDGE
INSTANCE = "io.moorage.instance"
WORKSPACE = "io.moorage.workspace"
SETUP_TIMEOUT = Duration(seconds=60)


@dataclass(frozen=True)
class Harbour:
    """Services, a client of theirs, and the engine that they command."""

    whole: Whole
    talks: Talks
    engine: docker.DockerClient
    instance: str

    async def create(self, session_id: str, **fields: Any) -> session_pb2.Session:
        """A session in a container; `spec` has what the workspace is besides."""
        spec = provision_pb2.ProvisionSpec(provider="docker", **fields.pop("spec", {}))
        fields.setdefault("wait_ready", True)
        return await self.talks.create(session_id, provision=spec, **fields)

    async def workspace(self, session_id: str) -> session_pb2.SessionWorkspace:
        """As GetSession tells of it."""
        return (await self.talks.session(session_id)).workspace

    def supplied(self, name: str) -> Path:
        """A directory of the machine that a container's user may change."""
        directory = self.whole.root / name
        directory.mkdir()
        directory.chmod(0o777)
        return directory

    def containers(self, workspace_id: str = "") -> list[Container]:
        """All that this instance made, or those of a workspace, in any state."""
        labels = [f"{INSTANCE}={self.instance}"]
        if workspace_id:
            labels.append(f"{WORKSPACE}={workspace_id}")
        return containers_of(self.engine, *labels)

    def container(self, workspace_id: str) -> Container:
        """The only one of a workspace."""
        [container] = self.containers(workspace_id)
        return container

    def processes(self, workspace_id: str) -> list[str]:
        """The commands that run in it, without its first process."""
        listed = self.container(workspace_id).top(ps_args="-o pid,args")
        return [row[-1] for row in listed["Processes"][1:]]

    async def until_empty(self, workspace_id: str, within: float = 30.0) -> None:
        """Return when nothing runs in a container any more."""
        await eventually(
            lambda: not self.processes(workspace_id), within=within, what="nothing runs in the container"
        )

    def check_gone(self, workspace_id: str, root: str) -> None:
        """Neither container nor directory is left."""
        assert self.containers(workspace_id) == []
        assert not Path(root).exists()


async def refused(call: Awaitable[object]) -> MoorageError:
    """Why the call was refused."""
    with pytest.raises(grpc.aio.AioRpcError) as refusal:
        await call
    return from_rpc_error(refusal.value)


@contextlib.contextmanager
def engine_at(address: str) -> Iterator[docker.DockerClient]:
    """A client of an engine."""
    with contextlib.closing(docker.DockerClient(address, timeout=60)) as client:
        yield client
