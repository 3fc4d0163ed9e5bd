"""Starts the services as processes of this one, waits until they serve, and ends them in order."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Self

import grpc
from grpc_health.v1 import health_pb2

_WRAPPER = Path(__file__).with_name("process.py")
_READY_PATIENCE = 60.0
_STOP_PATIENCE = 45.0
_POLL = 0.05
_TAIL_LINES = 15


class ServiceFailed(Exception):
    """A service did not start, or ended when nobody asked it to."""


@dataclass(frozen=True, slots=True)
class ServiceSpec:
    """A service to start: the module to run and the address at which it will serve."""

    name: str
    address: str
    arguments: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class _Running:
    spec: ServiceSpec
    process: asyncio.subprocess.Process
    log: Path


class Supervisor:
    """A set of service processes; as a context manager it ends them, last started first."""

    def __init__(self, logs: Path) -> None:
        """Keep each service's log in the directory `logs`."""
        self._logs = logs
        self._running: list[_Running] = []

    async def __aenter__(self) -> Self:
        self._logs.mkdir(parents=True, exist_ok=True)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    async def start(self, spec: ServiceSpec) -> None:
        """Start a service; it ends with this process, however that ends."""
        log = self._logs / f"{spec.name}.log"
        with log.open("ab") as output:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                str(_WRAPPER),
                str(os.getpid()),
                sys.executable,
                "-m",
                f"services.{spec.name}",
                *spec.arguments,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env={**os.environ, **spec.environment},
                start_new_session=True,
            )
        self._running.append(_Running(spec, process, log))

    async def wait_ready(self) -> None:
        """Return when all serve; ServiceFailed with the end of the log when one does not."""
        try:
            async with asyncio.timeout(_READY_PATIENCE):
                await asyncio.gather(*(self._wait_one(running) for running in self._running))
        except TimeoutError:
            raise ServiceFailed(
                f"the services were not ready after {_READY_PATIENCE:.0f} s; see {self._logs}"
            ) from None

    async def wait_failure(self) -> None:
        """Return never; ServiceFailed when a service ends."""
        async with asyncio.TaskGroup() as group:
            for running in self._running:
                group.create_task(self._watch(running))

    async def stop(self) -> None:
        """SIGTERM, last started first, each awaited; then SIGKILL for what is left."""
        while self._running:
            await _end(self._running.pop().process)

    async def _watch(self, running: _Running) -> None:
        await running.process.wait()
        raise _failure(running)

    async def _wait_one(self, running: _Running) -> None:
        async with grpc.aio.insecure_channel(running.spec.address) as channel:
            while not await _serves(channel):
                if running.process.returncode is not None:
                    raise _failure(running)
                await asyncio.sleep(_POLL)


async def _serves(channel: grpc.aio.Channel) -> bool:
    check = channel.unary_unary(
        "/grpc.health.v1.Health/Check",
        request_serializer=health_pb2.HealthCheckRequest.SerializeToString,
        response_deserializer=health_pb2.HealthCheckResponse.FromString,
    )
    try:
        answer = await check(health_pb2.HealthCheckRequest(service="ready"), timeout=1.0)
    except grpc.aio.AioRpcError:
        return False
    return bool(answer.status == health_pb2.HealthCheckResponse.SERVING)


async def _end(process: asyncio.subprocess.Process) -> None:
    if process.returncode is not None:
        return
    process.send_signal(signal.SIGTERM)
    try:
        await asyncio.wait_for(process.wait(), _STOP_PATIENCE)
    except TimeoutError:
        process.kill()
        await process.wait()


def _failure(running: _Running) -> ServiceFailed:
    lines = running.log.read_text(encoding="utf-8", errors="replace").splitlines()[-_TAIL_LINES:]
    told = "\n".join(f"  {line}" for line in lines)
    return ServiceFailed(
        f"{running.spec.name} ended with {running.process.returncode}; the end of {running.log}:\n{told}"
    )
