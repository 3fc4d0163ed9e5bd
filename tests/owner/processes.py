"""Owner as the process that operators start, its log read line by line."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from typing import Any, Self

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from services.common.channels import open_channel
from tests.conditions import eventually

SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING


class OwnerProcess:
    """One `python -m services.owner`. `lines` is its log so far."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.lines: list[dict[str, Any]] = []
        self._process = process
        self._reading = asyncio.create_task(self._read())

    @classmethod
    async def start(cls, *flags: str, **environment: str) -> Self:
        """Start it; nothing has been waited for."""
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("MOORAGE_")}
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            *("-m", "services.owner", "--min-ttl", "0.2", *flags),
            env={**inherited, **environment},
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
        )
        return cls(process)

    @property
    def endpoint(self) -> str:
        """Where it serves, empty while it does not."""
        return next((line["endpoint"] for line in self.lines if line.get("event") == "serving"), "")

    async def until_serving(self) -> str:
        """Wait until it listens; gives the endpoint."""
        await eventually(lambda: bool(self.endpoint), within=30, what="owner listens")
        return self.endpoint

    async def until_health(self, status: Any, name: str = "") -> None:
        """Wait until its health under this name is `status`."""
        async with open_channel(self.endpoint) as channel:
            stub: Any = health_pb2_grpc.HealthStub(channel)
            request = health_pb2.HealthCheckRequest(service=name)

            async def has_status() -> bool:
                with contextlib.suppress(grpc.aio.AioRpcError):
                    return bool((await stub.Check(request)).status == status)
                return False

            await eventually(has_status, within=30, what=f"health {name!r} is {status}")

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to this very process."""
        self._process.send_signal(number)

    async def ended(self) -> int:
        """Wait for its end; gives the exit code."""
        code = await asyncio.wait_for(self._process.wait(), 30)
        await self._reading
        return code

    async def kill(self) -> None:
        """End it as a lost machine does."""
        with contextlib.suppress(ProcessLookupError):
            self.signal(signal.SIGKILL)
        await self.ended()

    async def _read(self) -> None:
        assert self._process.stderr is not None
        async for line in self._process.stderr:
            with contextlib.suppress(ValueError):
                self.lines.append(json.loads(line))
                continue
            self.lines.append({"text": line.decode()})


@contextlib.asynccontextmanager
async def owner_process(*flags: str, **environment: str) -> AsyncIterator[OwnerProcess]:
    """A process that is gone after the block."""
    process = await OwnerProcess.start(*flags, **environment)
    try:
        yield process
    finally:
        await process.kill()
