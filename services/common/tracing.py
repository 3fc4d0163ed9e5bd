"""Traces of outgoing calls.

A channel wrapper rather than client interceptors: with those, grpc.aio hands out another kind of
call, whose writes are queued without bound and whose streams cannot be cancelled or asked for
their status.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from types import TracebackType
from typing import Any, Self

import grpc
from opentelemetry.trace import Span, SpanKind, Status, StatusCode

from services.common import telemetry


class TracingChannel(grpc.aio.Channel):
    """A channel each of whose calls is a client span and carries the trace context."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        """Wrap."""
        self._channel = channel

    def unary_unary(self, method: str, *args: Any, **kwargs: Any) -> Any:
        """See grpc.aio.Channel."""
        return _Traced(method, self._channel.unary_unary(method, *args, **kwargs))

    def unary_stream(self, method: str, *args: Any, **kwargs: Any) -> Any:
        """See grpc.aio.Channel."""
        return _Traced(method, self._channel.unary_stream(method, *args, **kwargs))

    def stream_unary(self, method: str, *args: Any, **kwargs: Any) -> Any:
        """See grpc.aio.Channel."""
        return _Traced(method, self._channel.stream_unary(method, *args, **kwargs))

    def stream_stream(self, method: str, *args: Any, **kwargs: Any) -> Any:
        """See grpc.aio.Channel."""
        return _Traced(method, self._channel.stream_stream(method, *args, **kwargs))

    async def close(self, grace: float | None = None) -> None:
        """See grpc.aio.Channel."""
        await self._channel.close(grace)

    def get_state(self, try_to_connect: bool = False) -> grpc.ChannelConnectivity:
        """See grpc.aio.Channel."""
        return self._channel.get_state(try_to_connect)

    async def wait_for_state_change(self, last_observed_state: grpc.ChannelConnectivity) -> None:
        """See grpc.aio.Channel."""
        await self._channel.wait_for_state_change(last_observed_state)

    async def channel_ready(self) -> None:
        """See grpc.aio.Channel."""
        await self._channel.channel_ready()

    async def __aenter__(self) -> Self:
        """See grpc.aio.Channel."""
        await self._channel.__aenter__()
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc_val: BaseException | None,
        exc_tb: TracebackType | None,
    ) -> None:
        """See grpc.aio.Channel."""
        await self._channel.__aexit__(exc_type, exc_val, exc_tb)


class _Traced:
    """Makes the calls of one method."""

    def __init__(self, method: str, make: Callable[..., Any]) -> None:
        self._service, _, self._method = method.strip("/").partition("/")
        self._make = make

    def __call__(self, *args: Any, metadata: Iterable[tuple[str, Any]] | None = None, **kwargs: Any) -> Any:
        span = telemetry.tracer().start_span(
            f"{self._service}/{self._method}",
            kind=SpanKind.CLIENT,
            attributes={"rpc.system": "grpc", "rpc.service": self._service, "rpc.method": self._method},
        )
        try:
            call = self._make(*args, metadata=_with_trace(tuple(metadata or ()), span), **kwargs)
        except BaseException:
            span.end()
            raise
        # Not by a finalizer: it would run inside a garbage collection, and ending a span there
        # changes context variables under the hands of the interpreter (it crashes CPython 3.11).
        call.add_done_callback(partial(_finish, span))
        return call


def _with_trace(metadata: tuple[tuple[str, Any], ...], span: Span) -> tuple[tuple[str, Any], ...]:
    """Who names a trace is believed: with two of them a server would choose."""
    if any(key == telemetry.TRACEPARENT for key, _ in metadata):
        return metadata
    return (*metadata, *telemetry.trace_headers(span).items())


def _finish(span: Span, call: grpc.aio.Call) -> None:
    code = _code_of(call)
    number: int = code.value[0]
    span.set_attribute("rpc.grpc.status_code", number)
    if code is not grpc.StatusCode.OK:
        span.set_status(Status(StatusCode.ERROR, code.name))
    span.end()


def _code_of(call: grpc.aio.Call) -> grpc.StatusCode:
    """The status of a call that is done: it is there, so its coroutine ends without waiting."""
    waiting = call.code()
    try:
        waiting.send(None)
    except StopIteration as stop:
        code: grpc.StatusCode = stop.value
        return code
    waiting.close()
    return grpc.StatusCode.UNKNOWN
