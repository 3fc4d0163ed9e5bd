"""A service as a process of its own, to be stopped or killed; its log is read back."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any, Self

from services.common.failpoints import VARIABLE
from tests.conditions import eventually


class ServiceProcess:
    """`python -m services.NAME`, on a free port unless another is wanted."""

    def __init__(
        self, name: str, log: Path, *arguments: str, listen: str = "127.0.0.1:0", failpoints: str = ""
    ) -> None:
        """Not started yet; `arguments` are flags and their values."""
        self._name = name
        self._log = log
        self._arguments = ("--listen", listen, *arguments)
        self._environment = {**os.environ, VARIABLE: failpoints}
        self._process: asyncio.subprocess.Process | None = None
        self._entries: list[dict[str, Any]] = []
        self._read = 0

    async def __aenter__(self) -> Self:
        command = (sys.executable, "-m", f"services.{self._name}", *self._arguments)
        with self._log.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                *command, stdin=asyncio.subprocess.DEVNULL, stdout=log, stderr=log, env=self._environment
            )
        return self

    async def __aexit__(self, *_: object) -> None:
        if self.process.returncode is None:
            self.process.kill()
        await self.process.wait()

    @property
    def process(self) -> asyncio.subprocess.Process:
        assert self._process is not None
        return self._process

    def events(self, name: str) -> list[dict[str, Any]]:
        """What it logged under this name."""
        with self._log.open("rb") as log:
            log.seek(self._read)
            whole, end, _ = log.read().rpartition(b"\n")
        # Whoever waits asks often: nothing is read twice.
        self._read += len(whole) + len(end)
        self._entries += (json.loads(line) for line in whole.splitlines() if line.startswith(b"{"))
        return [entry for entry in self._entries if entry.get("event") == name]

    async def logged(self, name: str, within: float = 60.0) -> dict[str, Any]:
        """The first event of this name, once it is there."""
        await eventually(lambda: bool(self.events(name)), within=within, what=f"{self._name} logged {name!r}")
        return self.events(name)[0]

    def send(self, number: signal.Signals) -> None:
        """A signal."""
        os.kill(self.process.pid, number)

    async def exit_code(self, within: float = 60.0) -> int:
        """How it ended; negative for a signal."""
        async with asyncio.timeout(within):
            return await self.process.wait()
