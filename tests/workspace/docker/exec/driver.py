"""The helper itself, run on this machine: what it says to what it is told, without an engine."""

from __future__ import annotations

import asyncio
import contextlib
import os
import platform
import time
from collections.abc import AsyncIterator, Mapping

import pytest

from services.workspace.docker.exec import frames
from services.workspace.docker.exec.frames import Order, Report
from services.workspace.docker.exec.helper import BUILT, why_missing

NANOSECONDS = 1_000_000_000


def program() -> str:
    """The helper for this machine; skips without one."""
    if missing := why_missing(platform.machine()):
        pytest.skip(missing)
    return str(BUILT / platform.machine())


def now() -> int:
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME)


class Driver:
    """Tells one helper what to do."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self._reader = frames.Reader()
        self._heard: list[tuple[Report, bytes]] = []

    @property
    def pid(self) -> int:
        return self.process.pid

    def say(self, data: bytes) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(data)

    def tell(self, order: Order, payload: bytes = b"") -> None:
        self.say(frames.frame(order, payload))

    async def hear(self) -> tuple[Report, bytes] | None:
        """The next frame, None at the end."""
        assert self.process.stdout is not None
        while not self._heard:
            if not (data := await self.process.stdout.read(65536)):
                return None
            self._heard += self._reader.feed(data)
        return self._heard.pop(0)

    async def hear_until(self, report: Report) -> list[tuple[Report, bytes]]:
        """All frames up to one of this kind."""
        heard: list[tuple[Report, bytes]] = []
        while not heard or heard[-1][0] is not report:
            frame = await self.hear()
            assert frame is not None, heard
            heard.append(frame)
        return heard

    async def greet(self, path: str = "/tmp") -> frames.Ready:
        self.say(frames.hello(path))
        return frames.read_ready((await self.hear_until(Report.READY))[-1][1])

    async def start(
        self, *command: str, seconds: float = 600, environment: Mapping[str, str] | None = None
    ) -> int:
        """The command's process id."""
        await self.greet()
        variables = {"PATH": os.environ["PATH"], **(environment or {})}
        until = now() + round(seconds * NANOSECONDS)
        self.say(frames.start("/tmp", command, variables, until=until, terminal=None))
        return frames.read_number((await self.hear_until(Report.STARTED))[-1][1])

    async def dead(self) -> tuple[int, bool, bool]:
        return frames.read_dead((await self.hear_until(Report.DEAD))[-1][1])

    def hang_up(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()


@contextlib.asynccontextmanager
async def driven(marker: str = "d/i/1/h") -> AsyncIterator[Driver]:
    """A helper, dead in the end."""
    process = await asyncio.create_subprocess_exec(
        *(program(), "run", marker), stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
    )
    try:
        yield Driver(process)
    finally:
        if process.returncode is None:
            process.kill()
        # The pipes are read to their end, so that nothing of them is left open.
        await process.communicate()
