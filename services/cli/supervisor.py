"""Starts the services as processes of this one, waits until they serve, and ends them in order."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import NoReturn, Self

import grpc
from grpc_health.v1 import health_pb2

from services.cli.child import tied
from services.cli.failures import CommandFailed
from services.cli.logfiles import LogFile
from services.cli.racing import first
from services.common.channels import open_channel

_READY_PATIENCE = 60.0
_STOP_PATIENCE = 75.0  # a runner lets its turns finish for 30 s, then stops and settles what is left
_HURRIED_PATIENCE = 4.0
_LAST_WORK = 1.0  # without the others a service cannot finish much
_POLL = 0.05


class ServiceFailed(CommandFailed):
    """A service did not start, or ended when nobody asked it to; `brief` says so without its last words."""

    def __init__(self, brief: str, last_words: str = "") -> None:
        super().__init__(": ".join(filter(None, (brief, last_words))))
        self.brief = brief


@dataclass(frozen=True, slots=True)
class ServiceSpec:
    """A service to start: the module to run and the address at which it will serve."""

    name: str
    address: str
    arguments: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Running:
    spec: ServiceSpec
    process: asyncio.subprocess.Process
    log: LogFile


class Supervisor:
    """A set of service processes; as a context manager it ends them, last started first."""

    def __init__(self, logs: Path) -> None:
        """Keep each service's log in the directory `logs`."""
        self._logs = logs
        self._running: list[_Running] = []

    @property
    def pids(self) -> list[int]:
        """Of the services, in the order of their start."""
        return [running.process.pid for running in self._running]

    async def __aenter__(self) -> Self:
        """Make the directory of the logs."""
        self._logs.mkdir(mode=0o700, parents=True, exist_ok=True)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End all; soon, when one of them has failed: a drain would wait for it."""
        if isinstance(error, ServiceFailed):
            await self._abandon()
        await self.stop()

    async def start(self, spec: ServiceSpec) -> None:
        """Start a service; it ends with this process, however that ends."""
        log = LogFile(self._logs / f"{spec.name}.log")
        with log.open() as output:
            process = await asyncio.create_subprocess_exec(
                *tied([sys.executable, "-m", f"services.{spec.name}", *spec.arguments]),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env={**os.environ, **spec.environment},
                start_new_session=True,  # a Ctrl-C is for us; we end the services in order
            )
        self._running.append(_Running(spec, process, log))

    async def wait_ready(self) -> None:
        """Return when all serve; ServiceFailed when one ends before, or takes too long."""
        try:
            async with asyncio.timeout(_READY_PATIENCE):
                await first(self.wait_failure(), self._all_ready())
        except TimeoutError:
            text = f"the services were not ready after {_READY_PATIENCE:.0f} s; see {self._logs}"
            raise ServiceFailed(text) from None

    async def wait_failure(self) -> NoReturn:
        """Wait until a service ends; raises ServiceFailed with its last words."""
        raise await first(*(_end_of(running) for running in self._running))

    async def stop(self) -> None:
        """SIGTERM, last started first, each awaited; cancelled meanwhile, it ends all at once."""
        try:
            while self._running:
                await _end(self._running[-1].process)
                self._running.pop()
        except asyncio.CancelledError:
            await self._hurry()
            raise

    async def _abandon(self) -> None:
        """SIGTERM to all at once, and after a moment what `_hurry` does."""
        left = [running.process for running in self._running if running.process.returncode is None]
        try:
            for process in left:
                process.terminate()
            if left:
                await asyncio.wait(
                    [asyncio.ensure_future(process.wait()) for process in left], timeout=_LAST_WORK
                )
        finally:
            await self._hurry()

    async def _hurry(self) -> None:
        """A second SIGTERM makes a service leave what is in progress; then SIGKILL."""
        left = [running.process for running in self._running if running.process.returncode is None]
        self._running.clear()
        try:
            for process in left:
                process.terminate()
            async with asyncio.timeout(_HURRIED_PATIENCE):
                for process in left:
                    await process.wait()
        except TimeoutError:
            pass
        finally:
            for process in left:
                _kill(process)

    async def _all_ready(self) -> None:
        for running in self._running:
            async with open_channel(running.spec.address) as channel:
                while not await _serves(channel):
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
        # Not wait_for: in Python 3.11 it forgets a cancellation that meets what it waits for.
        async with asyncio.timeout(_STOP_PATIENCE):
            await process.wait()
    except TimeoutError:
        _kill(process)
        await process.wait()


def _kill(process: asyncio.subprocess.Process) -> None:
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            process.kill()


async def _end_of(running: _Running) -> ServiceFailed:
    code = await running.process.wait()
    how = f"was ended by {_signal(-code)}" if code < 0 else f"ended with exit code {code}"
    return ServiceFailed(f"the service {running.spec.name} {how}", running.log.last_words())


def _signal(number: int) -> str:
    meaning = (signal.strsignal(number) or "").lower()
    return f"{signal.Signals(number).name} ({meaning})"
