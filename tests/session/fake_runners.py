"""Runners that do as a test says, on real gRPC servers, and record what they were asked."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import grpc
from moorage.runner.v1 import runner_pb2
from moorage.runner.v1.runner_pb2_grpc import RunnerServiceServicer, add_RunnerServiceServicer_to_server

Context = grpc.aio.ServicerContext[Any, Any]
Act = Callable[[runner_pb2.DispatchTurnRequest], Awaitable[None]]

AnswerAct = Callable[[runner_pb2.DeliverAnswerRequest], Awaitable[None]]
StopAct = Callable[[runner_pb2.DeliverStopRequest], Awaitable[None]]
ListAct = Callable[[], Awaitable[None]]
EndAct = Callable[[runner_pb2.EndRuntimeRequest], Awaitable[None]]

ACCEPTED = runner_pb2.DISPATCH_RESULT_ACCEPTED


class FakeRunner(RunnerServiceServicer):
    """Answers `result`, after `act`; `asked` and `traceparents` have an entry per dispatch.

    It answers `answer_result` to answers, after `answer_act`; `answers` and `answer_traceparents`
    have an entry for each of them. It answers `stop_result` to Stops, after `stop_act`; `stops`
    and `stop_traceparents` have an entry for each of them, `settled` one for each SettleTurn,
    `ends` one for each EndRuntime, which is answered after `end_act`. It executes `executions`,
    as it says after `list_act`, and answers `settle_result` to SettleTurn; `listed` counts how
    often it was asked, which is in vain while it `hangs`.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.holder = f"{name}/1"
        self.endpoint = ""
        self.stop_result = runner_pb2.DELIVERY_RESULT_ACCEPTED
        self.stop_act: StopAct | None = None
        self.stops: list[runner_pb2.DeliverStopRequest] = []
        self.stop_traceparents: list[str] = []
        self.settled: list[runner_pb2.SettleTurnRequest] = []
        self.settle_result = runner_pb2.DELIVERY_RESULT_ACCEPTED
        self.executions: list[runner_pb2.Execution] = []
        self.list_act: ListAct | None = None
        self.listed = 0
        self.hangs = False
        self.end_act: EndAct | None = None
        self.ends: list[runner_pb2.EndRuntimeRequest] = []
        self.answer_result = runner_pb2.DELIVERY_RESULT_ACCEPTED
        self.answer_act: AnswerAct | None = None
        self.answers: list[runner_pb2.DeliverAnswerRequest] = []
        self.answer_traceparents: list[str] = []
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
        return runner_pb2.DispatchTurnResponse(result=self.result, holder=self.holder)

    async def DeliverStop(
        self, request: runner_pb2.DeliverStopRequest, context: Context
    ) -> runner_pb2.DeliverStopResponse:
        headers = dict(context.invocation_metadata() or ())
        self.stops.append(request)
        self.stop_traceparents.append(str(headers.get("traceparent", "")))
        if self.stop_act is not None:
            await self.stop_act(request)
        return runner_pb2.DeliverStopResponse(result=self.stop_result, holder=self.holder)

    async def DeliverAnswer(
        self, request: runner_pb2.DeliverAnswerRequest, context: Context
    ) -> runner_pb2.DeliverAnswerResponse:
        headers = dict(context.invocation_metadata() or ())
        self.answers.append(request)
        self.answer_traceparents.append(str(headers.get("traceparent", "")))
        if self.answer_act is not None:
            await self.answer_act(request)
        return runner_pb2.DeliverAnswerResponse(result=self.answer_result, holder=self.holder)

    async def SettleTurn(
        self, request: runner_pb2.SettleTurnRequest, context: Context
    ) -> runner_pb2.SettleTurnResponse:
        self.settled.append(request)
        return runner_pb2.SettleTurnResponse(result=self.settle_result, holder=self.holder)

    async def EndRuntime(
        self, request: runner_pb2.EndRuntimeRequest, context: Context
    ) -> runner_pb2.EndRuntimeResponse:
        self.ends.append(request)
        if self.end_act is not None:
            await self.end_act(request)
        return runner_pb2.EndRuntimeResponse(ended=True)

    async def Drain(self, request: runner_pb2.DrainRequest, context: Context) -> runner_pb2.DrainResponse:
        self.result = runner_pb2.DISPATCH_RESULT_DRAINING
        return runner_pb2.DrainResponse(holder=self.holder)

    async def ListExecutions(
        self, request: runner_pb2.ListExecutionsRequest, context: Context
    ) -> runner_pb2.ListExecutionsResponse:
        self.listed += 1
        if self.hangs:
            await asyncio.Event().wait()
        if self.list_act is not None:
            await self.list_act()
        return runner_pb2.ListExecutionsResponse(holder=self.holder, executions=self.executions)


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
