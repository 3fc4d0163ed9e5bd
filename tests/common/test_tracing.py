"""One trace from the caller's span through the channel and the server into the handler."""

from __future__ import annotations

import grpc
import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanContext, SpanKind, StatusCode

from services.common import telemetry
from services.common.telemetry import current_traceparent, use_traceparent
from tests.common.conftest import Logs
from tests.common.echo import SERVICE, Caller
from tests.conditions import eventually

KINDS = ["Unary", "Download", "DownloadByWriting", "Upload", "Chat"]
STORED = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


async def ended(spans: InMemorySpanExporter, kind: SpanKind) -> ReadableSpan:
    await eventually(lambda: any(span.kind is kind for span in spans.get_finished_spans()))
    return next(span for span in spans.get_finished_spans() if span.kind is kind)


def ids(span: ReadableSpan) -> SpanContext:
    context: SpanContext | None = span.context
    assert context is not None
    return context


def parent_of(span: ReadableSpan) -> int:
    assert span.parent is not None
    return span.parent.span_id


def attribute(span: ReadableSpan, name: str) -> object:
    assert span.attributes is not None
    return span.attributes[name]


@pytest.mark.parametrize("method", KINDS)
async def test_the_trace_goes_on_in_the_handler(
    caller: Caller, spans: InMemorySpanExporter, method: str
) -> None:
    with telemetry.tracer().start_as_current_span("outer") as outer:
        seen = (await caller.call(method, "trace")).split(",")[-1]
    server, client = await ended(spans, SpanKind.SERVER), await ended(spans, SpanKind.CLIENT)
    assert ids(client).trace_id == ids(server).trace_id == outer.get_span_context().trace_id
    assert parent_of(client) == outer.get_span_context().span_id
    assert parent_of(server) == ids(client).span_id
    assert seen.split("-")[2] == trace.format_span_id(ids(server).span_id)
    assert server.name == client.name == f"{SERVICE}/{method}"


async def test_a_refusal_is_no_fault_of_the_server(caller: Caller, spans: InMemorySpanExporter) -> None:
    with pytest.raises(grpc.aio.AioRpcError):
        await caller.call("Unary", "refuse")
    server, client = await ended(spans, SpanKind.SERVER), await ended(spans, SpanKind.CLIENT)
    assert attribute(server, "rpc.grpc.status_code") == attribute(client, "rpc.grpc.status_code") == 9
    assert attribute(server, "moorage.reason") == "LEASE_HELD"
    assert server.status.status_code is StatusCode.UNSET
    assert client.status.status_code is StatusCode.ERROR


async def test_an_unexpected_error_is_a_fault_of_the_server(
    caller: Caller, spans: InMemorySpanExporter
) -> None:
    with pytest.raises(grpc.aio.AioRpcError):
        await caller.call("Unary", "crash")
    assert (await ended(spans, SpanKind.SERVER)).status.status_code is StatusCode.ERROR


async def test_each_call_is_one_line_with_its_trace(
    caller: Caller, spans: InMemorySpanExporter, logs: Logs
) -> None:
    await caller.call("Unary", "trace", metadata=[("moorage-project", "blue")])
    await eventually(lambda: bool(logs.lines("call")))
    [line] = logs.lines("call")
    server = await ended(spans, SpanKind.SERVER)
    assert line["method"] == f"/{SERVICE}/Unary"
    assert (line["code"], line["reason"]) == ("OK", "")
    assert (line["project"], line["session"], line["service"]) == ("blue", "session_1", "test")
    assert line["trace_id"] == trace.format_trace_id(ids(server).trace_id)
    assert line["peer"].startswith("ipv4:127.0.0.1:")
    assert 0 < line["duration_ms"] < 10_000


async def test_the_line_of_a_refused_call_has_code_and_reason(caller: Caller, logs: Logs) -> None:
    with pytest.raises(grpc.aio.AioRpcError):
        await caller.call("Download", "refuse")
    await eventually(lambda: bool(logs.lines("call")))
    [line] = logs.lines("call")
    assert (line["code"], line["reason"]) == ("FAILED_PRECONDITION", "LEASE_HELD")


def test_a_stored_trace_is_gone_on_with(spans: InMemorySpanExporter) -> None:
    with use_traceparent(STORED):
        assert current_traceparent() == STORED
        with telemetry.tracer().start_as_current_span("later") as later:
            assert trace.format_trace_id(later.get_span_context().trace_id) == STORED.split("-")[1]
    assert current_traceparent() == ""


@pytest.mark.parametrize("stored", ["", "nonsense", "00-0-0-00"])
def test_a_bad_stored_trace_begins_a_new_one(stored: str) -> None:
    with use_traceparent(STORED), use_traceparent(stored):
        assert current_traceparent() == ""
