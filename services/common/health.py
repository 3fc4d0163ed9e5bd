"""gRPC's standard health service (Check, List, Watch), whose watches end with the server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any, Final

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from services.common.errors import NotFound, ShuttingDown

LIVE: Final = "live"
READY: Final = "ready"
OVERALL: Final = ""

# The published stubs lag behind: they lack List and the values of the status.
_pb2: Any = health_pb2
_Status: Any = _pb2.HealthCheckResponse
_Context = grpc.aio.ServicerContext[Any, Any]


class UnknownHealthName(NotFound):
    """nothing named {name!r} has a health here"""


class Health(health_pb2_grpc.HealthServicer):
    """What this process says of itself. `live` depends on nothing outside of it, all else on probes."""

    def __init__(self) -> None:
        """Begin alive and not ready."""
        self._serving: dict[str, bool] = {LIVE: True, READY: False, OVERALL: False}
        self._changed = asyncio.Event()
        self._closed = False

    def add(self, *names: str) -> None:
        """Give services a health that follows `ready`."""
        for name in names:
            self._serving[name] = self._serving[READY]

    def set_ready(self, ready: bool) -> None:
        """Set `ready`, the overall status and every service."""
        for name in self._serving.keys() - {LIVE}:
            self._serving[name] = ready
        self._notify()

    def close(self) -> None:
        """End all watches."""
        self._closed = True
        self._notify()

    async def Check(self, request: Any, context: _Context) -> Any:  # noqa: N802
        """The status of one name; NOT_FOUND for another."""
        if request.service not in self._serving:
            raise UnknownHealthName(name=request.service)
        return _pb2.HealthCheckResponse(status=self._status(request.service))

    async def List(self, request: Any, context: _Context) -> Any:  # noqa: N802
        """The status of every name."""
        statuses = {name: _pb2.HealthCheckResponse(status=self._status(name)) for name in self._serving}
        return _pb2.HealthListResponse(statuses=statuses)

    async def Watch(self, request: Any, context: _Context) -> AsyncIterator[Any]:  # noqa: N802
        """The status of one name now and at each change; ends UNAVAILABLE with the server."""
        last: int | None = None
        while not self._closed:
            changed = self._changed
            status = self._status(request.service)
            if status != last:
                yield _pb2.HealthCheckResponse(status=status)
                last = status
            await changed.wait()
        raise ShuttingDown

    def _status(self, name: str) -> int:
        if name not in self._serving:
            return int(_Status.SERVICE_UNKNOWN)
        return int(_Status.SERVING if self._serving[name] else _Status.NOT_SERVING)

    def _notify(self) -> None:
        # Each watcher waits for the event that was current when it looked: none misses a change.
        self._changed.set()
        self._changed = asyncio.Event()
