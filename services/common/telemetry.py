"""OpenTelemetry by the standard OTEL_* variables, and trace context as a text that can be stored.

Spans are always made, so that logs have trace ids and context travels; they are exported
when an exporter or an endpoint is named (OTEL_TRACES_EXPORTER, OTEL_EXPORTER_OTLP_ENDPOINT, …).
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from opentelemetry import context as otel_context
from opentelemetry import trace
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from services.common.errors import StartupRefused
from services.common.metrics import configure_metrics, shutdown_metrics

if TYPE_CHECKING:
    from opentelemetry.sdk.trace.export import SpanExporter

TRACEPARENT: Final = "traceparent"
# Looked up once: a look-up costs as much as a span.
_TRACER: Final = trace.get_tracer("moorage")
_PROPAGATOR: Final = TraceContextTextMapPropagator()
_ENDPOINTS: Final = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")


def configure_telemetry(service: str) -> None:
    """Install the tracer provider of this process; call it once, before the first span."""
    if os.environ.get("OTEL_SDK_DISABLED", "").lower() == "true":
        return
    # Imported here: the command line has no provider, and need not wait for it.
    from opentelemetry.sdk.resources import SERVICE_NAME, Resource  # noqa: PLC0415
    from opentelemetry.sdk.trace import TracerProvider  # noqa: PLC0415
    from opentelemetry.sdk.trace.export import BatchSpanProcessor  # noqa: PLC0415

    named = {} if "OTEL_SERVICE_NAME" in os.environ else {SERVICE_NAME: f"moorage-{service}"}
    resource = Resource.create(named)
    provider = TracerProvider(resource=resource)
    if exporter := _exporter():
        provider.add_span_processor(BatchSpanProcessor(exporter))
    trace.set_tracer_provider(provider)
    configure_metrics(resource)


def shutdown_telemetry() -> None:
    """Send what is still waiting."""
    from opentelemetry.sdk.trace import TracerProvider  # noqa: PLC0415 (see above)

    provider = trace.get_tracer_provider()
    if isinstance(provider, TracerProvider):
        provider.shutdown()
    shutdown_metrics()


def tracer() -> trace.Tracer:
    """The tracer of the product, also before the provider is installed."""
    return _TRACER


def current_traceparent() -> str:
    """The W3C traceparent of the current span, to be stored or sent; empty without a span."""
    return trace_headers().get(TRACEPARENT, "")


@contextmanager
def use_traceparent(traceparent: str) -> Iterator[None]:
    """Go on in the trace of a stored traceparent; a malformed or empty one starts a new trace."""
    with _attached(context_from({TRACEPARENT: traceparent})):
        yield


def trace_headers(span: trace.Span | None = None) -> dict[str, str]:
    """The trace context of a span (the current one) as headers or metadata: traceparent and tracestate."""
    headers: dict[str, str] = {}
    _PROPAGATOR.inject(headers, context=trace.set_span_in_context(span) if span else None)
    return headers


def context_from(headers: Mapping[str, str]) -> otel_context.Context:
    """The trace context that headers carry, an empty one where they carry none."""
    return _PROPAGATOR.extract(headers, context=otel_context.Context())


@contextmanager
def _attached(context: otel_context.Context) -> Iterator[None]:
    token = otel_context.attach(context)
    try:
        yield
    finally:
        otel_context.detach(token)


def _exporter() -> SpanExporter | None:
    named = os.environ.get("OTEL_TRACES_EXPORTER", "")
    wanted = named or ("otlp" if any(os.environ.get(name) for name in _ENDPOINTS) else "none")
    if wanted == "none":
        return None
    if wanted == "console":
        from opentelemetry.sdk.trace.export import ConsoleSpanExporter  # noqa: PLC0415 (see above)

        return ConsoleSpanExporter()
    if wanted != "otlp":
        raise StartupRefused(f"OTEL_TRACES_EXPORTER: {wanted!r} is none of otlp, console, none")
    # Imported late: it costs a quarter of a second that most processes need not spend.
    from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter  # noqa: PLC0415

    return OTLPSpanExporter()
