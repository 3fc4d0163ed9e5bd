"""A service of all four kinds of calls that does what its request says, on a real server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Final

import grpc
from google.protobuf.wrappers_pb2 import StringValue
from moorage.common.v1.errors_pb2 import ErrorReason

from services.common.channels import cancelling
from services.common.errors import FailedPrecondition, InvalidArgument
from services.common.logs import bind
from services.common.telemetry import current_traceparent

SERVICE: Final = "moorage.test.v1.EchoService"

Context = grpc.aio.ServicerContext[Any, Any]


class DoorLocked(FailedPrecondition):
    """door {door} is locked by {holder}"""

    reason = ErrorReason.ERROR_REASON_LEASE_HELD


class Echo:
    """The servicer. It remembers which calls were cut short, and how."""

    def __init__(self) -> None:
        self.cut: list[str] = []
        self.entered = asyncio.Event()
        self.released = asyncio.Event()
        self.ended = asyncio.Event()

    async def unary(self, request: StringValue, context: Context) -> StringValue:
        return StringValue(value=await self.act(request.value, context))

    async def download(self, request: StringValue, context: Context) -> AsyncIterator[StringValue]:
        yield StringValue(value="first")
        yield StringValue(value=await self.act(request.value, context))

    async def download_by_writing(self, request: StringValue, context: Context) -> None:
        await context.write(StringValue(value="first"))
        await context.write(StringValue(value=await self.act(request.value, context)))

    async def upload(self, requests: AsyncIterator[StringValue], context: Context) -> StringValue:
        values = [await self.act(request.value, context) async for request in requests]
        return StringValue(value=",".join(values))

    async def chat(
        self, requests: AsyncIterator[StringValue], context: Context
    ) -> AsyncIterator[StringValue]:
        async for request in requests:
            yield StringValue(value=await self.act(request.value, context))

    async def pour(self, request: StringValue, context: Context) -> AsyncIterator[StringValue]:
        """Send for ever."""
        try:
            while True:
                yield StringValue(value="x" * 1000)
                self.entered.set()
        finally:
            self.cut.append(f"closed in {_task_name()}")

    async def linger(self, request: StringValue, context: Context) -> None:
        """Write once more after being cancelled, however long that takes."""
        await context.write(StringValue(value="first"))
        try:
            await self.released.wait()
        except asyncio.CancelledError:
            await self.released.wait()
        try:
            await context.write(StringValue(value="too late"))
        finally:
            self.ended.set()

    async def act(self, action: str, context: Context) -> str:
        self.entered.set()
        try:
            return await _ACTIONS.get(action, _measure)(context)
        except asyncio.CancelledError:
            self.cut.append(action)
            raise

    def add_to(self, server: grpc.aio.Server) -> None:
        handlers = {
            "Unary": grpc.unary_unary_rpc_method_handler(self.unary, *_CODECS),
            "Download": grpc.unary_stream_rpc_method_handler(self.download, *_CODECS),
            "DownloadByWriting": grpc.unary_stream_rpc_method_handler(self.download_by_writing, *_CODECS),
            "Upload": grpc.stream_unary_rpc_method_handler(self.upload, *_CODECS),
            "Chat": grpc.stream_stream_rpc_method_handler(self.chat, *_CODECS),
            "Linger": grpc.unary_stream_rpc_method_handler(self.linger, *_CODECS),
            "Pour": grpc.unary_stream_rpc_method_handler(self.pour, *_CODECS),
        }
        server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler(SERVICE, handlers)])


class Caller:
    """The client side: one method per kind, each ends with the text received."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self.channel = channel

    def start(self, method: str) -> Any:
        kind = {"Unary": "unary_unary", "Upload": "stream_unary", "Chat": "stream_stream"}.get(
            method, "unary_stream"
        )
        return getattr(self.channel, kind)(f"/{SERVICE}/{method}", _serialise, StringValue.FromString)

    async def call(self, method: str, action: str | bytes, **options: Any) -> str:
        """Have the service do something; bytes are sent as they are."""
        request = StringValue(value=action) if isinstance(action, str) else action
        call = self.start(method)(iter([request]) if method in ("Upload", "Chat") else request, **options)
        with cancelling(call):
            if method in ("Unary", "Upload"):
                return str((await call).value)
            return ",".join([message.value async for message in call])


async def _refuse(_context: Context) -> str:
    raise DoorLocked(door="front", holder="runner-1/ab", retry_after=2.5)


async def _reject(_context: Context) -> str:
    raise InvalidArgument.of("prompt", "must not be empty")


async def _crash(_context: Context) -> str:
    raise RuntimeError("the secret is 4711")


async def _cancel(_context: Context) -> str:
    raise asyncio.CancelledError


async def _cancel_task(_context: Context) -> str:
    task = asyncio.current_task()
    assert task is not None
    task.cancel()
    await asyncio.sleep(30)
    return "not reached"


async def _hang(_context: Context) -> str:
    await asyncio.sleep(30)
    return "not reached"


async def _refuse_in_group(_context: Context) -> str:
    async with asyncio.TaskGroup() as group:
        group.create_task(_refuse(_context))
        group.create_task(_hang(_context))
    return "not reached"


async def _abort(context: Context) -> str:
    await context.abort(grpc.StatusCode.UNAUTHENTICATED, "who are you?")


async def _trace(_context: Context) -> str:
    bind(session="session_1")
    return current_traceparent()


async def _refuse_with_trailers(context: Context) -> str:
    context.set_trailing_metadata([("moorage-hint", "look at the door")])
    return await _refuse(context)


async def _measure(_context: Context) -> str:
    return "measured"


async def _ok(_context: Context) -> str:
    return "ok"


_ACTIONS: Final[dict[str, Callable[[Context], Awaitable[str]]]] = {
    "ok": _ok,
    "refuse": _refuse,
    "reject": _reject,
    "crash": _crash,
    "cancel": _cancel,
    "cancel_task": _cancel_task,
    "hang": _hang,
    "refuse_with_trailers": _refuse_with_trailers,
    "refuse_in_group": _refuse_in_group,
    "abort": _abort,
    "trace": _trace,
}
_CODECS: Final = (StringValue.FromString, StringValue.SerializeToString)


def _serialise(request: StringValue | bytes) -> bytes:
    return request if isinstance(request, bytes) else request.SerializeToString()


def _task_name() -> str:
    task = asyncio.current_task()
    return task.get_name() if task else "no task"
