"""Lag: how late the workspace service's event loop is while its engine is paused and work stands in line.

A paused engine is a socket on which somebody listens and nobody accepts. The service runs in this
process, so that its loop can be watched; owner and PostgreSQL (fsync on) are beside it. Each value is the
99th percentile of how late a timer of 5 ms is. The reference is the same service with nothing to do.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import socket
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Final

from moorage.common.v1 import provision_pb2
from moorage.workspace.v1 import workspace_pb2
from moorage.workspace.v1.workspace_pb2_grpc import WorkspaceServiceStub

from bench.harness.places import database, scratch
from bench.harness.results import Effort, Report
from bench.harness.sampling import percentile
from services.cli.ports import choose
from services.cli.supervisor import ServiceSpec, Supervisor
from services.common.channels import open_channel
from services.common.logs import configure_logging
from services.workspace.config import WorkspaceSettings
from services.workspace.server import build

_TIMER: Final = 0.005
_SHARE: Final = 0.99
_WORKSPACES: Final = 50
# Calls give up and are made again several times while it is measured.
_ENGINE_TIMEOUT: Final = 0.5


async def measure(effort: Effort) -> Report:
    """It."""
    report = Report()
    with scratch() as directory, _silent_engine() as engine:
        async with _service(directory, engine) as endpoint, open_channel(endpoint) as channel:
            idle = [await _lag(effort.seconds) for _ in range(effort.rounds)]
            stub = WorkspaceServiceStub(channel)
            for number in range(_WORKSPACES):
                await stub.ProvisionWorkspace(_wish(number), timeout=60)
            paused = [await _lag(effort.seconds) for _ in range(effort.rounds)]
    report.add("loop_lag_p99_engine_paused", "ms", paused, idle, against="the same service, idle")
    return report


async def _lag(seconds: float) -> float:
    """Milliseconds."""
    late: list[float] = []
    ends = time.perf_counter() + seconds
    while (began := time.perf_counter()) < ends:
        await asyncio.sleep(_TIMER)
        late.append(max(0.0, time.perf_counter() - began - _TIMER))
    return percentile(late, _SHARE) * 1000


@contextlib.contextmanager
def _silent_engine() -> Iterator[str]:
    """Its address, short enough for a socket's."""
    with tempfile.TemporaryDirectory(prefix="lag-") as directory, socket.socket(socket.AF_UNIX) as listener:
        listener.bind(f"{directory}/socket")
        listener.listen(1024)
        yield f"unix://{directory}/socket"


@contextlib.asynccontextmanager
async def _service(directory: Path, engine: str) -> AsyncIterator[str]:
    """A ready workspace service in this process; its endpoint."""
    owner = choose({"owner": 0}, {})["owner"]
    root = directory / "root"
    root.mkdir()
    async with database(directory) as url, Supervisor(directory / "logs") as supervisor:
        variables = {"MOORAGE_DATABASE_URL": url}
        await supervisor.start(ServiceSpec("owner", owner, ("--listen", owner), variables))
        await supervisor.wait_ready()
        settings = WorkspaceSettings(
            listen="127.0.0.1:0",
            database_url=url,
            owner_address=owner,
            instance_id=f"bench-{secrets.token_hex(4)}",
            root=root,
            state_directory=directory / "state",
            docker_host=engine,
            docker_images=("any",),
            docker_timeout=_ENGINE_TIMEOUT,
        )
        with (directory / "log").open("w", encoding="utf-8") as log:
            configure_logging(settings, "workspace", log)
            async with build(settings).running() as endpoint:
                yield endpoint


def _wish(number: int) -> workspace_pb2.ProvisionWorkspaceRequest:
    return workspace_pb2.ProvisionWorkspaceRequest(
        project="default",
        workspace_id=f"w{number}",
        session_id=f"s{number}",
        provision=provision_pb2.ProvisionSpec(provider="docker"),
    )
