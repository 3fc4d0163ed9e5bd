"""Runners that do as a test says, on real gRPC servers, and record what they were asked."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import grpc
from moorage.runner.v1 import runner_pb2
from moorage.runner.v1.runner_pb2_grpc import RunnerServiceServicer, add_RunnerServiceServicer_to_server

Context = grpc.aio.ServicerContext[Any, Any]
Act = Callable[[runner_pb2.DispatchTurnRequest], Awaitable[None]]

ACCEPTED = runner_pb2.DISPATCH_RESULT_ACCEPTED


class FakeRunner(RunnerServiceServicer):
    """Answers `result`, after `act`; `asked` and `traceparents` have an entry per dispatch."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.endpoint = ""
        self.result = ACCEPTED
        self.act: Act | None = None
        self.asked: list[runner_pb2.DispatchTurnRequest] = []
        self.traceparents: list[str] = []

    @property
    def turns(self) -> list[str]:
        """Session and turn of each dispatch."""
        return [f"{request.session_id}/{request.turn_id}" for request in self.asked]

    async def DispatchTurn(
        self, request: runner_pb2.DispatchTurnRequest, context: Context
    ) -> runner_pb2.DispatchTurnResponse:
        headers = dict(context.invocation_metadata() or ())
        self.asked.append(request)
        self.traceparents.append(str(headers.get("traceparent", "")))
        if self.act is not None:
            await self.act(request)
        return runner_pb2.DispatchTurnResponse(result=self.result, holder=f"{self.name}/1")

    async def ListExecutions(
        self, request: runner_pb2.ListExecutionsRequest, context: Context
    ) -> runner_pb2.ListExecutionsResponse:
        return runner_pb2.ListExecutionsResponse(holder=f"{self.name}/1")


@contextlib.asynccontextmanager
async def fake_runner(name: str) -> AsyncIterator[FakeRunner]:
    """A runner that serves on a free port."""
    runner, server = FakeRunner(name), grpc.aio.server()
    add_RunnerServiceServicer_to_server(runner, server)
    runner.endpoint = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    await server.start()
    try:
        yield runner
    finally:
        await server.stop(0)
