"""Messages to a process, written one after another by one task."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Any

import grpc
from moorage.workspace.v1 import workspace_pb2

ExecCall = grpc.aio.StreamStreamCall[workspace_pb2.ExecRequest, workspace_pb2.ExecResponse]


class Outgoing:
    """Writes in a task of its own: no caller's cancellation cuts the stream or a message in two."""

    def __init__(self, call: ExecCall) -> None:
        """Nothing has been written on the call."""
        self._call = call
        self._waiting: deque[tuple[workspace_pb2.ExecRequest, asyncio.Future[None]]] = deque()
        self._filled = asyncio.Event()
        self._closed = False

    async def send(self, *requests: workspace_pb2.ExecRequest) -> None:
        """Return when all are written, in this order; ConnectionError when they cannot be."""
        waiting = [(request, new_future()) for request in requests]
        self._waiting.extend(waiting)
        self._filled.set()
        if self._closed:
            self._fail_all()
        for _, written in waiting:
            await asyncio.shield(written)

    def send_first(self, request: workspace_pb2.ExecRequest) -> asyncio.Future[None]:
        """Send before what waits; the future tells when it is written, or ConnectionError."""
        written = new_future()
        self._waiting.appendleft((request, written))
        self._filled.set()
        if self._closed:
            self._fail_all()
        return written

    def finish(self) -> None:
        """Close this side of the stream; what was not written yet cannot be any more."""
        self._closed = True
        self._filled.set()
        self._fail_all()

    async def run(self, start: workspace_pb2.ExecStart) -> None:
        """Write `start`, then what comes, until it is to finish or the stream breaks; its reader learns why."""
        try:
            await self._call.write(workspace_pb2.ExecRequest(start=start))
            while not self._closed:
                await self._filled.wait()
                self._filled.clear()
                await self._write_all()
            await self._call.done_writing()
        except (grpc.aio.AioRpcError, asyncio.InvalidStateError):
            return
        finally:
            self._closed = True
            self._fail_all()

    async def _write_all(self) -> None:
        while self._waiting:
            request, written = self._waiting.popleft()
            try:
                await self._call.write(request)
            except BaseException:
                fail(written, process_ended())
                raise
            written.set_result(None)

    def _fail_all(self) -> None:
        while self._waiting:
            fail(self._waiting.popleft()[1], process_ended())


def new_future() -> asyncio.Future[Any]:
    """Of the running loop."""
    return asyncio.get_running_loop().create_future()


def fail(future: asyncio.Future[Any], error: Exception) -> None:
    """Give it the error, whether somebody waits for it or not."""
    future.set_exception(error)
    future.exception()


def process_ended() -> ConnectionError:
    """What a caller learns who writes to it or asks it."""
    return ConnectionResetError("the process has ended")
