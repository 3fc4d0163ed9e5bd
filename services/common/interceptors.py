"""The one interceptor of every server: observes, admits and answers all four kinds of calls."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Final

import grpc
from google.protobuf.message import DecodeError

from services.common.answers import answered
from services.common.calls import Call, observed
from services.common.errors import InvalidArgument

_Context = grpc.aio.ServicerContext[Any, Any]
_Behaviour = Callable[[Any, _Context], Any]
_Decode = Callable[[bytes], Any]

_FACTORIES: Final[dict[tuple[bool, bool], tuple[str, Callable[..., Any]]]] = {
    (False, False): ("unary_unary", grpc.unary_unary_rpc_method_handler),
    (False, True): ("unary_stream", grpc.unary_stream_rpc_method_handler),
    (True, False): ("stream_unary", grpc.stream_unary_rpc_method_handler),
    (True, True): ("stream_stream", grpc.stream_stream_rpc_method_handler),
}


class CallInterceptor(grpc.aio.ServerInterceptor):
    """Wraps handlers; `admit` raises while nothing can be served yet, health and reflection excepted."""

    def __init__(self, admit: Callable[[], None], stopping: Callable[[], bool]) -> None:
        """`stopping` says whether a cancellation is a shutdown."""
        self._admit = admit
        self._stopping = stopping

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[grpc.RpcMethodHandler[Any, Any] | None]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> grpc.RpcMethodHandler[Any, Any] | None:
        """Wrap the handler of a known method."""
        handler = await continuation(handler_call_details)
        if handler is None:
            return None
        return _wrapped(handler, partial(self._run, handler_call_details.method))

    async def _run(self, method: str, context: _Context, handle: Callable[[], Awaitable[Any]]) -> Any:
        call = Call(method, context)

        async def admitted() -> Any:
            if not call.is_infrastructure:
                self._admit()
            return await handle()

        with observed(call):
            return await answered(call, admitted, self._stopping)


def _wrapped(
    handler: grpc.RpcMethodHandler[Any, Any],
    run: Callable[[_Context, Callable[[], Awaitable[Any]]], Awaitable[Any]],
) -> grpc.RpcMethodHandler[Any, Any]:
    """The same handler with `run` around it, always as a coroutine.

    Responses of a generator are written here, so that it is closed by the task of its call,
    with what it holds, and not some time later by the garbage collector.
    """
    kind, factory = _FACTORIES[handler.request_streaming, handler.response_streaming]
    behaviour: _Behaviour = getattr(handler, kind)
    decode = _decoding(handler.request_deserializer)
    if not handler.request_streaming:
        # A single request grpc would read before us, and answer UNKNOWN with a traceback in the log.
        behaviour = _reading(behaviour, decode)
    handle = _write_all if handler.response_streaming else _respond

    async def wrapper(request: Any, context: _Context) -> Any:
        return await run(context, partial(handle, behaviour, request, context))

    wrapped: grpc.RpcMethodHandler[Any, Any] = factory(
        wrapper, decode if handler.request_streaming else None, handler.response_serializer
    )
    return wrapped


def _decoding(deserialize: _Decode | None) -> _Decode:
    """Bytes that are no message of their type, or text that is not UTF-8, are the caller's fault."""

    def decode(request: bytes) -> Any:
        try:
            return deserialize(request) if deserialize else request
        except DecodeError as error:
            raise InvalidArgument.of("request", f"cannot be read: {error}") from error

    return decode


def _reading(behaviour: _Behaviour, decode: _Decode) -> _Behaviour:
    return lambda request, context: behaviour(decode(request), context)


async def _respond(behaviour: _Behaviour, request: Any, context: _Context) -> Any:
    return await behaviour(request, context)


async def _write_all(behaviour: _Behaviour, request: Any, context: _Context) -> None:
    responses = behaviour(request, context)
    if inspect.isawaitable(responses):
        await responses
        return
    async with contextlib.aclosing(responses):
        async for response in responses:
            await context.write(response)
