"""Where commands run, by provider: the same tests are made for all of them."""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import shutil
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, TypeVar

import docker

from services.workspace.docker import engine, equipment
from services.workspace.docker.exec.helper import HELPER_PATH, helper_program
from services.workspace.docker.exec.helpers import Helpers
from services.workspace.docker.exec.mount import Mount, Seen
from services.workspace.exec.forkserver import ForkServer
from services.workspace.exec.marker import Marker
from services.workspace.exec.output import Channel, copy_output
from services.workspace.exec.process import Outcome, Process, ReadEnd
from tests.engines import BUSYBOX

T = TypeVar("T")

PATH = "/usr/local/bin:/usr/bin:/bin"
_HELPERS = str(Path(HELPER_PATH).parent)


@dataclass(slots=True)
class Ran:
    """What a command said, and how it ended."""

    stdout: bytes = b""
    stderr: bytes = b""
    outcome: Outcome = field(default_factory=lambda: Outcome(None, None, killed=True))

    async def take(self, channel: Channel, data: bytes) -> None:
        """A piece of output."""
        if channel is Channel.STDOUT:
            self.stdout += data
        else:
            self.stderr += data


class Place(Protocol):
    """Makes processes."""

    async def spawn(self, terminal: tuple[int, int] | None = None) -> Process:
        """One that waits to be started; killed in the end."""
        ...


async def start(place: Place, *command: str, terminal: tuple[int, int] | None = None) -> Process:
    """A command that runs."""
    process = await place.spawn(terminal)
    await process.start(command, {"PATH": PATH}, terminal=terminal is not None)
    return process


async def finish(process: Process) -> Ran:
    """All that it says, and its end."""
    ran = Ran()
    await copy_output(process.streams, process.ended, ran.take)
    ran.outcome = await asyncio.shield(process.ended)
    return ran


async def read_until(end: ReadEnd, wanted: bytes) -> bytes:
    """What it says up to that."""
    never: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    received = b""
    while wanted not in received:
        data = end.read_now(nobody_writes=False)
        assert data != b"", received
        if data is None:
            await end.wait(never)
        else:
            received += data
    return received


async def run(place: Place, *command: str, environment: Mapping[str, str] | None = None) -> Ran:
    """A command from its start to its end, without input."""
    process = await place.spawn()
    process.streams.stdin.close()
    await process.start(command, {"PATH": PATH} if environment is None else environment, terminal=False)
    return await finish(process)


class Kept:
    """The processes that a place made."""

    def __init__(self) -> None:
        self._processes: list[Process] = []

    def keep(self, process: Process) -> Process:
        self._processes.append(process)
        return process

    async def close(self) -> None:
        for process in self._processes:
            process.kill()
            await asyncio.wait({process.ended})
            process.streams.close()


class LocalPlace:
    """Processes of this machine, in a directory."""

    def __init__(self, directory: Path) -> None:
        self._kept = Kept()
        self._server = ForkServer()
        self._server.prepare(Marker("deployment", f"test-{os.getpid()}", "1"))
        self._directory = os.open(directory, os.O_PATH)

    async def spawn(self, terminal: tuple[int, int] | None = None) -> Process:
        return self._kept.keep(self._server.spawn(self._directory, terminal))

    async def close(self) -> None:
        await self._kept.close()
        os.close(self._directory)
        await self._server.close()


class Engine:
    """A real engine, called as the provider does, and past it by `api`, which blocks."""

    def __init__(self, address: str, timeout: float = 60.0) -> None:
        self._engine = engine.Engine(address, threads=8, timeout=timeout)
        self._client = docker.DockerClient(address, timeout=60)
        self.api: Any = self._client.api

    async def call(self, work: Callable[[docker.DockerClient], T]) -> T:
        return await self._engine.call(work)

    def close(self) -> None:
        self._engine.close()
        self._client.close()


@dataclass(frozen=True, slots=True)
class Container:
    """A running container without a network, of a user without rights."""

    engine: Engine
    container_id: str
    helper: Path
    """The directory of this machine that the helper is in."""

    @classmethod
    def make(cls, engine: Engine, image: str = BUSYBOX, **limits: Any) -> Container:
        """Blocks."""
        api = engine.api
        helper = Path(tempfile.mkdtemp(prefix="moorage-"), "state", "helper", "tests")
        equipment.place(str(helper), helper_program(api.version()["Arch"]))
        limits = {"mem_limit": "256m", "memswap_limit": "256m", "pids_limit": 512, **limits}
        made = api.create_container(
            image,
            entrypoint=[HELPER_PATH, "init"],
            name=f"moorage-tests-{secrets.token_hex(6)}",
            user="10001:10001",
            network_disabled=True,
            host_config=api.create_host_config(
                cap_drop=["ALL"],
                security_opt=["no-new-privileges"],
                init=False,
                binds=[f"{helper}:{_HELPERS}:ro"],
                **limits,
            ),
        )
        container = cls(engine, made["Id"], helper)
        api.start(container.container_id)
        return container

    @property
    def mount(self) -> Mount:
        """What it has of this machine."""
        status = self.helper.stat()
        return Mount(_HELPERS, Seen(status.st_dev, status.st_ino))

    def remove(self) -> None:
        """Blocks."""
        with contextlib.suppress(docker.errors.NotFound):
            self.engine.api.remove_container(self.container_id, force=True)
        shutil.rmtree(self.helper.parents[2], ignore_errors=True)

    def ask(self, *command: str) -> str:
        """What a command in it says, run past the helper. Blocks."""
        made = self.engine.api.exec_create(self.container_id, list(command))
        return str(self.engine.api.exec_start(made["Id"]).decode())


class DockerPlace:
    """Processes in a container."""

    def __init__(self, container: Container, start_name: str = "1") -> None:
        self._kept = Kept()
        self.container = container
        self.seconds = 600.0
        """For how long processes may live that hear nothing more."""
        self.helpers = Helpers(container.engine, self._lives_until)
        self.helpers.prepare(Marker("deployment", "instance", start_name))

    async def spawn(self, terminal: tuple[int, int] | None = None) -> Process:
        container = self.container
        return self._kept.keep(
            await self.helpers.spawn(container.container_id, container.mount, "/tmp", terminal)
        )

    async def close(self) -> None:
        await self._kept.close()

    def _lives_until(self) -> float:
        return time.clock_gettime(time.CLOCK_BOOTTIME) + self.seconds


@contextlib.asynccontextmanager
async def container_on(address: str, timeout: float = 60.0, **limits: Any) -> AsyncIterator[Container]:
    """A container of an engine, removed in the end."""
    called = Engine(address, timeout)
    container = await asyncio.to_thread(Container.make, called, **limits)
    try:
        yield container
    finally:
        await asyncio.to_thread(container.remove)
        called.close()
