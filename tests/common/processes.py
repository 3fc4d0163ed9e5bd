"""Service processes of tests, read by their logs."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from typing import Any


class Process:
    """A running `python -m tests.common.harbour`."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self.lines: list[dict[str, Any]] = []
        self.noise: list[str] = []
        self._reading = asyncio.create_task(self._read())
        self._news = asyncio.Event()

    @property
    def events(self) -> list[str]:
        return [str(line["event"]) for line in self.lines]

    @property
    def endpoint(self) -> str:
        return next(str(line["endpoint"]) for line in self.lines if line["event"] == "serving")

    async def logged(self, event: str) -> dict[str, Any]:
        """The first line of this event, waited for."""
        async with asyncio.timeout(20):
            while not (found := [line for line in self.lines if line["event"] == event]):
                assert not self._reading.done(), f"ended without {event!r}: {self.events} {self.noise}"
                self._news.clear()
                await self._news.wait()
        return found[0]

    def signal(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    async def ended(self) -> int:
        """Its exit code, after all it wrote was read."""
        async with asyncio.timeout(20):
            await self._reading
            return await self._process.wait()

    async def close(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()
        await self.ended()

    async def _read(self) -> None:
        assert self._process.stderr is not None
        async for line in self._process.stderr:
            try:
                self.lines.append(json.loads(line))
            except ValueError:
                self.noise.append(line.decode())
            self._news.set()
        self._news.set()


@contextlib.asynccontextmanager
async def harbour(*arguments: str, **environment: str) -> AsyncIterator[Process]:
    """Start it on a free port; killed at the end if it still runs."""
    process = Process(
        await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "tests.common.harbour",
            "--listen=127.0.0.1:0",
            *arguments,
            stderr=asyncio.subprocess.PIPE,
            env={**os.environ, **environment},
        )
    )
    try:
        yield process
    finally:
        await process.close()
