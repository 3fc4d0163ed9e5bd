"""The service as a process of its own: `python -m services.workspace`."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import secrets
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from services.common.channels import open_channel
from services.common.errors import MoorageError
from tests.conditions import eventually
from tests.workspace.instances import Client, Machine
from tests.workspace.processes import mentioning


class ServiceProcess:
    """One start of the service, and its log."""

    def __init__(self, process: asyncio.subprocess.Process, log: Path) -> None:
        self.process = process
        self._log = log

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self._log.read_text().splitlines() if line.startswith("{")]

    def events(self) -> list[str]:
        return [str(line.get("event")) for line in self.lines]

    async def client(self) -> Client:
        """Once it is ready."""
        client = Client(open_channel(await self.endpoint()))
        await eventually(lambda: self._is_ready(client), within=20, what=f"it is ready: {self.lines}")
        return client

    async def endpoint(self) -> str:
        await eventually(lambda: "serving" in self.events(), within=20, what="it serves")
        return str(next(line["endpoint"] for line in self.lines if line["event"] == "serving"))

    async def kill(self) -> None:
        """As if the machine took it."""
        self.process.kill()
        await self.process.wait()

    async def terminate(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return await self.process.wait()

    async def _is_ready(self, client: Client) -> bool:
        try:
            await client.list_page()
        except MoorageError:
            return False
        return "ready" in self.events()


@contextlib.asynccontextmanager
async def started(machine: Machine, *flags: str, **variables: str) -> AsyncIterator[ServiceProcess]:
    """A start of the service; killed at the end of the block if it still lives."""
    settings = {
        "MOORAGE_DATABASE_URL": machine.database_url,
        "MOORAGE_OWNER_ADDRESS": machine.owner_address,
        "MOORAGE_WORKSPACE_LISTEN": "127.0.0.1:0",
        "MOORAGE_WORKSPACE_INSTANCE_ID": machine.instance_id,
        "MOORAGE_WORKSPACE_ROOT": str(machine.root),
        "MOORAGE_WORKSPACE_STATE_DIRECTORY": str(machine.state),
        **variables,
    }
    log = machine.directory / f"{secrets.token_hex(4)}.log"
    with log.open("wb") as stderr:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "services.workspace", *flags),
            env={**os.environ, **settings},
            stderr=stderr,
        )
    service = ServiceProcess(process, log)
    try:
        yield service
    finally:
        if process.returncode is None:
            await service.kill()
        for pid in mentioning(f"/{machine.instance_id}/"):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
