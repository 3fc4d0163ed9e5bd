"""A stack with several runners, which can be killed one by one."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

from bench.harness.places import database
from services.cli.child import tied
from services.cli.database import DatabaseAddress
from services.cli.ports import choose
from services.cli.stack import PORTS, StackOptions, service_specs
from services.cli.state import Running
from services.cli.supervisor import Supervisor


class Crew:
    """Runners by name, each a process that is started anew when it was killed."""

    def __init__(self, logs: Path, arguments: Sequence[str]) -> None:
        """`arguments` are those that all have in common."""
        self._logs = logs
        self._arguments = arguments
        self._processes: dict[str, asyncio.subprocess.Process] = {}

    async def start(self, name: str) -> None:
        """Begin; it offers itself when it is ready."""
        address = choose({name: 0}, {})[name]
        arguments = ("-m", "services.runner", *self._arguments, "--listen", address, "--name", name)
        with (self._logs / f"{name}.log").open("ab") as log:
            self._processes[name] = await asyncio.create_subprocess_exec(
                *tied([sys.executable, *arguments]),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    async def kill(self, holder: str) -> str:
        """As a machine that is lost; gives the name of the one with this holder."""
        name = holder.partition("/")[0]
        self._processes[name].kill()
        await self._processes[name].wait()
        return name

    async def end(self) -> None:
        """Kill them all."""
        for name in self._processes:
            with contextlib.suppress(ProcessLookupError):
                await self.kill(name)


@contextlib.asynccontextmanager
async def crew(directory: Path, names: Sequence[str], lease: float) -> AsyncIterator[tuple[Crew, Running]]:
    """All other services and these runners, with leases of so many seconds."""
    root = directory / "root"
    root.mkdir()
    options = StackOptions(root, directory)
    addresses = choose(dict.fromkeys(PORTS, 0), {})
    running = Running(os.getpid(), str(root), str(options.logs), **addresses)
    async with database(directory) as url, Supervisor(options.logs) as supervisor:
        *others, runner = service_specs(options, running, DatabaseAddress(url))
        for spec in others:
            await supervisor.start(spec)
        await supervisor.wait_ready()
        # Its own address and name, which come last, go before the stack's.
        runners = Crew(options.logs, (*runner.arguments, "--lease-ttl", str(lease)))
        try:
            for name in names:
                await runners.start(name)
            yield runners, running
        finally:
            await runners.end()
