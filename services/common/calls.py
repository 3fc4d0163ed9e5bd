"""What is known of one call, and what is told of it: a span and one line in the log."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

import grpc
from opentelemetry import trace
from opentelemetry.trace import Span, SpanKind, StatusCode

from services.common import logs, telemetry
from services.common.project import PROJECT_KEY

_log: Final = logs.get_logger(__name__)

# Health, reflection and channelz: asked often, by machines, about nothing.
_INFRASTRUCTURE: Final = "/grpc."
# Codes that are the server's fault; the others are answers.
_FAULTS: Final = frozenset(
    {
        grpc.StatusCode.UNKNOWN,
        grpc.StatusCode.DEADLINE_EXCEEDED,
        grpc.StatusCode.UNIMPLEMENTED,
        grpc.StatusCode.INTERNAL,
        grpc.StatusCode.UNAVAILABLE,
        grpc.StatusCode.DATA_LOSS,
    }
)


@dataclass(slots=True)
class Call:
    """One call from its arrival to its status."""

    method: str
    context: grpc.aio.ServicerContext[Any, Any]
    started: float = field(default_factory=time.monotonic)
    code: grpc.StatusCode = grpc.StatusCode.OK
    reason: str = ""
    error_id: str = ""

    @property
    def is_infrastructure(self) -> bool:
        """It belongs to health, reflection or channelz."""
        return self.method.startswith(_INFRASTRUCTURE)

    def headers(self) -> dict[str, str]:
        """The text part of its metadata."""
        metadata = self.context.invocation_metadata() or ()
        return {key: value for key, value in metadata if isinstance(value, str)}


@contextmanager
def observed(call: Call) -> Iterator[None]:
    """Trace and log one call; `code` and `reason` are read when it is over."""
    headers = call.headers()
    if project := headers.get(PROJECT_KEY):
        logs.bind(project=project)
    if call.is_infrastructure:
        with _logged(call):
            yield
        return
    with _span(call, headers) as span, _logged(call):
        try:
            yield
        finally:
            _describe(span, call)


@contextmanager
def _logged(call: Call) -> Iterator[None]:
    try:
        yield
    finally:
        level = "debug" if call.is_infrastructure else "info"
        getattr(_log, level)(
            "call",
            method=call.method,
            code=call.code.name,
            reason=call.reason,
            duration_ms=round((time.monotonic() - call.started) * 1000, 2),
            peer=call.context.peer(),
            **({"error_id": call.error_id} if call.error_id else {}),
        )


@contextmanager
def _span(call: Call, headers: dict[str, str]) -> Iterator[Span]:
    service, _, method = call.method.strip("/").partition("/")
    with telemetry.tracer().start_as_current_span(
        f"{service}/{method}",
        context=telemetry.context_from(headers),
        kind=SpanKind.SERVER,
        attributes={"rpc.system": "grpc", "rpc.service": service, "rpc.method": method},
        # An aborted call leaves its handler by an exception that is no error of ours.
        record_exception=False,
        set_status_on_exception=False,
    ) as span:
        yield span


def _describe(span: Span, call: Call) -> None:
    number: int = call.code.value[0]
    span.set_attribute("rpc.grpc.status_code", number)
    if call.reason:
        span.set_attribute("moorage.reason", call.reason)
    if call.code in _FAULTS:
        span.set_status(trace.Status(StatusCode.ERROR, call.reason))
