"""The four services as processes around one directory, on a server of their own; each can be killed and started."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Self

from services.cli.postgres.embedded import EmbeddedPostgres
from services.cli.stack import SCHEMAS
from services.common.channels import open_channel
from services.common.migrations import migrate
from tests.runner.parts import FREE
from tests.runner.talks import Talks
from tests.system.service_process import ServiceProcess

NAMES = ("owner", "workspace", "session", "runner")
Flags = Mapping[str, tuple[str, ...]]


class Whole:
    """Running services by name; one that starts again serves where it did."""

    def __init__(self, postgres: EmbeddedPostgres, directory: Path, flags: Flags) -> None:
        """`flags` are additional ones, by service."""
        self.postgres = postgres
        self.root = directory / "root"
        self.root.mkdir()
        self.processes: dict[str, ServiceProcess] = {}
        self._directory = directory
        self._flags = flags
        self._addresses: dict[str, str] = {}
        self._starts = 0
        self._running = contextlib.AsyncExitStack()

    async def __aenter__(self) -> Self:
        for schema in SCHEMAS:
            await migrate(self.postgres.url, schema)
        for name in NAMES:
            await self.start(name)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._running.aclose()

    async def start(self, name: str, *flags: str) -> None:
        """Return when it serves; with `flags` besides its own."""
        self._starts += 1
        log = self._directory / f"{self._starts:03}.{name}.log"
        arguments = (*self._arguments(name), *flags)
        process = ServiceProcess(name, log, *arguments, listen=self._addresses.get(name, FREE))
        self.processes[name] = await self._running.enter_async_context(process)
        await process.logged("registered" if name == "runner" else "ready")
        addresses = [event["endpoint"] for event in process.events("serving")]
        self._addresses[name] = addresses[0]
        if name == "session":
            self._addresses["journal"] = addresses[1]

    async def kill(self, name: str) -> None:
        """SIGKILL; return when it is dead."""
        self.processes[name].send(signal.SIGKILL)
        assert await self.processes[name].exit_code() == -signal.SIGKILL

    async def end(self, name: str) -> None:
        """SIGTERM; return when it has ended in order."""
        self.processes[name].send(signal.SIGTERM)
        assert await self.processes[name].exit_code() == 0

    @contextlib.asynccontextmanager
    async def talks(self) -> AsyncIterator[Talks]:
        """A client."""
        async with open_channel(self._addresses["session"]) as channel:
            yield Talks(channel)

    def _arguments(self, name: str) -> tuple[str, ...]:
        database = ("--database-url", self.postgres.url)
        owner = ("--owner-address", self._addresses.get("owner", ""))
        workspace = ("--workspace-address", self._addresses.get("workspace", ""))
        journal = self._addresses.get("journal", FREE)
        state = str(self._directory / "state")
        root = ("--root", str(self.root), "--default-directory", str(self.root), "--state-directory", state)
        arguments = {
            "owner": database,
            "workspace": (*database, *owner, *root),
            "session": (*database, *owner, *workspace, "--journal-listen", journal),
            "runner": ("--name", "one", *owner, *workspace, "--journal-address", journal),
        }
        return (*arguments[name], *self._flags.get(name, ()))
