"""A Stop in traces: its own span in the trace of whoever ordered it, and a mark on the turn's."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from opentelemetry import trace

from services.common.telemetry import tracer, use_traceparent
from services.runner.endings import TurnStopped


@contextmanager
def stopping(stop: TurnStopped) -> Iterator[None]:
    """The block winds the turn of the current span down because of this Stop."""
    attributes = {"moorage.command": stop.command_id, "moorage.end_reason": stop.reason_name}
    turn = trace.get_current_span()
    turn.add_event("stop", attributes)
    link = trace.Link(turn.get_span_context(), {"moorage.link": "turn"})
    with (
        use_traceparent(stop.traceparent),
        tracer().start_as_current_span("stop", links=[link], attributes=attributes) as span,
    ):
        turn.add_link(span.get_span_context(), {"moorage.link": "stop"})
        yield
