"""A fork server without an instance around it."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

from services.workspace.exec.forkserver import ForkServer
from services.workspace.exec.marker import Marker
from services.workspace.exec.shimmed import ShimProcess


class Bench:
    """See the module."""

    def __init__(self, directory: Path) -> None:
        self.marker = Marker("deployment", f"test-{os.getpid()}", "1")
        self.server = ForkServer()
        self.server.prepare(self.marker)
        self._directory = os.open(directory, os.O_PATH)
        self._processes: list[ShimProcess] = []

    def spawn(self) -> ShimProcess:
        self._processes.append(self.server.spawn(self._directory, None))
        return self._processes[-1]

    async def start(self, process: ShimProcess, *command: str) -> int:
        return await process.start(command, {"PATH": os.environ["PATH"]}, terminal=False)

    async def close(self) -> None:
        for process in self._processes:
            process.kill()
            await asyncio.wait({process.ended})
            process.streams.close()
        os.close(self._directory)
        await self.server.close()
