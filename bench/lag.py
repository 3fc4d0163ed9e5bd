"""Lag: how late the workspace service's event loop is while its engine hangs and work stands in line.

What hangs is a relay in front of the engine, so commands in containers run and write all the time and
their connections hang, too. Where there is no engine it is a socket on which nobody accepts, and nothing
runs. The service runs in this process, so that its loop can be watched; owner and PostgreSQL (fsync on) are
beside it. Each value is the 99th percentile of how late a timer of 5 ms is. The reference is the same
service with nothing to do.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import socket
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import grpc
from moorage.common.v1 import provision_pb2
from moorage.workspace.v1 import workspace_pb2
from moorage.workspace.v1.workspace_pb2_grpc import WorkspaceServiceStub

from bench.harness.dock import IMAGE, Dock, engine_address, why_not
from bench.harness.places import database, scratch
from bench.harness.relay import relay
from bench.harness.results import Effort, Report
from bench.harness.sampling import percentile
from services.cli.ports import choose
from services.cli.supervisor import ServiceSpec, Supervisor
from services.common.channels import open_channel
from services.common.logs import configure_logging
from services.workspace.config import WorkspaceSettings
from services.workspace.server import build

if TYPE_CHECKING:
    from moorage.workspace.v1.workspace_pb2_grpc import WorkspaceServiceAsyncStub

_TIMER: Final = 0.005
_SHARE: Final = 0.99
_WORKSPACES: Final = 50
_COMMANDS: Final = 10
_TALK: Final = ("sh", "-c", "while :; do echo something; usleep 10000; done")
# Calls give up and are made again several times while it is measured.
_ENGINE_TIMEOUT: Final = 1.0


@dataclass(frozen=True, slots=True)
class _Engine:
    """One that can hang: its address, what makes it hang, and what ends that."""

    address: str
    pause: Callable[[], None]
    resume: Callable[[], None]


async def measure(effort: Effort) -> Report:
    """It."""
    report = Report()
    if cause := await asyncio.to_thread(why_not):
        report.notes.append(f"no command ran in a container while the engine hung: {cause}")
    with scratch() as directory, _silent_engine() if cause else _relayed_engine() as engine:
        async with _service(directory, engine.address) as (owner, workspace):
            idle = [await _lag(effort.seconds) for _ in range(effort.rounds)]
            async with (
                _talking(Dock(owner, workspace), 0 if cause else _COMMANDS),
                _hanging(engine, WorkspaceServiceStub(workspace), gone=not cause),
            ):
                paused = [await _lag(effort.seconds) for _ in range(effort.rounds)]
    report.add("loop_lag_p99_engine_paused", "ms", paused, idle, against="the same service, idle")
    return report


@contextlib.asynccontextmanager
async def _talking(dock: Dock, commands: int) -> AsyncIterator[None]:
    """Within the block so many commands write in a container."""
    if not commands:
        yield
        return
    session_id, grant = await dock.lease()
    await dock.provision(session_id)
    running = [asyncio.create_task(dock.run(session_id, grant, *_TALK)) for _ in range(commands)]
    try:
        await dock.run(session_id, grant, "true")
        yield
    finally:
        for each in running:
            each.cancel()
        await asyncio.wait(running)
        await dock.remove(session_id)


@contextlib.asynccontextmanager
async def _hanging(
    engine: _Engine, workspaces: WorkspaceServiceAsyncStub, *, gone: bool
) -> AsyncIterator[None]:
    """Within the block it hangs, and containers are wanted of it. `gone`: they are, when this returns."""
    engine.pause()
    try:
        for number in range(_WORKSPACES):
            await workspaces.ProvisionWorkspace(_wish(number), timeout=60)
        yield
        for number in range(_WORKSPACES):
            await workspaces.DeleteWorkspace(_deletion(number), timeout=60)
    finally:
        engine.resume()
    for number in range(_WORKSPACES if gone else 0):
        await workspaces.GetWorkspace(_look(number), timeout=60)


async def _lag(seconds: float) -> float:
    """Milliseconds."""
    late: list[float] = []
    ends = time.perf_counter() + seconds
    while (began := time.perf_counter()) < ends:
        await asyncio.sleep(_TIMER)
        late.append(max(0.0, time.perf_counter() - began - _TIMER))
    return percentile(late, _SHARE) * 1000


@contextlib.contextmanager
def _silent_engine() -> Iterator[_Engine]:
    """Its address is short enough for a socket's; it hangs from the start."""
    with tempfile.TemporaryDirectory(prefix="lag-") as directory, socket.socket(socket.AF_UNIX) as listener:
        listener.bind(f"{directory}/socket")
        listener.listen(1024)
        yield _Engine(f"unix://{directory}/socket", lambda: None, lambda: None)


@contextlib.contextmanager
def _relayed_engine() -> Iterator[_Engine]:
    """This machine's."""
    with relay(engine_address()) as before:
        yield _Engine(before.address, before.pause, before.resume)


@contextlib.asynccontextmanager
async def _service(directory: Path, engine: str) -> AsyncIterator[tuple[grpc.aio.Channel, grpc.aio.Channel]]:
    """A ready workspace service in this process: channels to its owner and to itself."""
    address = choose({"owner": 0}, {})["owner"]
    root = directory / "root"
    root.mkdir()
    async with database(directory) as url, Supervisor(directory / "logs") as supervisor:
        variables = {"MOORAGE_DATABASE_URL": url}
        await supervisor.start(ServiceSpec("owner", address, ("--listen", address), variables))
        await supervisor.wait_ready()
        settings = WorkspaceSettings(
            listen="127.0.0.1:0",
            database_url=url,
            owner_address=address,
            instance_id=f"bench-{secrets.token_hex(4)}",
            root=root,
            state_directory=directory / "state",
            docker_host=engine,
            docker_images=(IMAGE,),
            docker_timeout=_ENGINE_TIMEOUT,
        )
        with (directory / "log").open("w", encoding="utf-8") as log:
            configure_logging(settings, "workspace", log)
            async with (
                build(settings).running() as endpoint,
                open_channel(address) as owner,
                open_channel(endpoint) as workspace,
            ):
                yield owner, workspace


def _wish(number: int) -> workspace_pb2.ProvisionWorkspaceRequest:
    return workspace_pb2.ProvisionWorkspaceRequest(
        project="default",
        workspace_id=f"w{number}",
        session_id=f"s{number}",
        provision=provision_pb2.ProvisionSpec(provider="docker"),
    )


def _deletion(number: int) -> workspace_pb2.DeleteWorkspaceRequest:
    return workspace_pb2.DeleteWorkspaceRequest(project="default", workspace_id=f"w{number}")


def _look(number: int) -> workspace_pb2.GetWorkspaceRequest:
    return workspace_pb2.GetWorkspaceRequest(project="default", workspace_id=f"w{number}", wait=True)
