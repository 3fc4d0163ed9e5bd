"""Peers that stand between two real services, on real gRPC servers: they hold, lose and record calls."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TYPE_CHECKING, Any

import grpc
from moorage.session.v1 import journal_pb2
from moorage.session.v1.journal_pb2_grpc import (
    JournalServiceServicer,
    JournalServiceStub,
    add_JournalServiceServicer_to_server,
)

from services.common.channels import open_channel
from services.common.errors import name_of
from services.common.status import from_rpc_error

if TYPE_CHECKING:
    from moorage.session.v1.journal_pb2_grpc import JournalServiceAsyncStub

Context = grpc.aio.ServicerContext[Any, Any]
Act = Callable[[Any], Awaitable[None]]


class JournalBetween(JournalServiceServicer):
    """Passes every call on to a real journal.

    `losing[name]` answers of that RPC are lost: the journal has acted, and the caller is told
    UNAVAILABLE. `before[name]` is awaited with each request first. `seen` has all requests,
    `refused` counts by reason the writes that the journal refused.
    """

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self._stub: JournalServiceAsyncStub = JournalServiceStub(channel)
        self.losing: dict[str, int] = {}
        self.before: dict[str, Act] = {}
        self.seen: list[Any] = []
        self.refused: Counter[str] = Counter()
        self.endpoint = ""

    def requests(self, kind: type[Any]) -> list[Any]:
        """The requests of one kind, oldest first."""
        return [request for request in self.seen if isinstance(request, kind)]

    async def BeginTurn(
        self, request: journal_pb2.BeginTurnRequest, context: Context
    ) -> journal_pb2.BeginTurnResponse:
        response: journal_pb2.BeginTurnResponse = await self._pass("BeginTurn", request, context)
        return response

    async def ReportProgress(
        self, request: journal_pb2.ReportProgressRequest, context: Context
    ) -> journal_pb2.ReportProgressResponse:
        response: journal_pb2.ReportProgressResponse = await self._pass("ReportProgress", request, context)
        return response

    async def OpenInteraction(
        self, request: journal_pb2.OpenInteractionRequest, context: Context
    ) -> journal_pb2.OpenInteractionResponse:
        response: journal_pb2.OpenInteractionResponse = await self._pass("OpenInteraction", request, context)
        return response

    async def ListHistory(
        self, request: journal_pb2.ListHistoryRequest, context: Context
    ) -> journal_pb2.ListHistoryResponse:
        response: journal_pb2.ListHistoryResponse = await self._pass("ListHistory", request, context)
        return response

    async def ClaimSession(
        self, request: journal_pb2.ClaimSessionRequest, context: Context
    ) -> journal_pb2.ClaimSessionResponse:
        response: journal_pb2.ClaimSessionResponse = await self._pass("ClaimSession", request, context)
        return response

    async def FinishTurn(
        self, request: journal_pb2.FinishTurnRequest, context: Context
    ) -> journal_pb2.FinishTurnResponse:
        response: journal_pb2.FinishTurnResponse = await self._pass("FinishTurn", request, context)
        return response

    async def AppendRecords(
        self, request_iterator: AsyncIterator[journal_pb2.AppendRecordsRequest], context: Context
    ) -> AsyncIterator[journal_pb2.AppendRecordsResponse]:
        call = self._stub.AppendRecords()
        try:
            async for request in request_iterator:
                await self._see("AppendRecords", request)
                await call.write(request)
                response = await call.read()
                await self._lose("AppendRecords", context)
                if not isinstance(response, journal_pb2.AppendRecordsResponse):
                    return
                refused = (result.error.reason for result in response.results if result.HasField("error"))
                self.refused.update(map(name_of, refused))
                yield response
        except grpc.aio.AioRpcError as error:
            await context.abort(error.code(), error.details() or "", tuple(error.trailing_metadata() or ()))
        finally:
            call.cancel()

    async def _pass(self, name: str, request: Any, context: Context) -> Any:
        await self._see(name, request)
        try:
            response = await getattr(self._stub, name)(request, timeout=30)
        except grpc.aio.AioRpcError as error:
            self.refused[from_rpc_error(error).reason_name] += 1
            await context.abort(error.code(), error.details() or "", tuple(error.trailing_metadata() or ()))
        await self._lose(name, context)
        return response

    async def _see(self, name: str, request: Any) -> None:
        self.seen.append(request)
        if act := self.before.get(name):
            await act(request)

    async def _lose(self, name: str, context: Context) -> None:
        if self.losing.get(name, 0) > 0:
            self.losing[name] -= 1
            await context.abort(grpc.StatusCode.UNAVAILABLE, "the answer is lost")


class Gate:
    """Holds whoever passes until it is opened."""

    def __init__(self) -> None:
        self.reached = asyncio.Event()
        self.open = asyncio.Event()

    async def __call__(self, _: object = None) -> None:
        self.reached.set()
        await self.open.wait()


@contextlib.asynccontextmanager
async def journal_between(target: str, *, largest_answer: int = -1) -> AsyncIterator[JournalBetween]:
    """A journal before the one at `target`; `largest_answer` is in bytes, -1 for any."""
    async with open_channel(target) as channel:
        between = JournalBetween(channel)
        server = grpc.aio.server(options=[("grpc.max_send_message_length", largest_answer)])
        add_JournalServiceServicer_to_server(between, server)
        between.endpoint = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
        await server.start()
        try:
            yield between
        finally:
            await server.stop(0.2)
