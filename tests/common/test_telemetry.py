"""Export by the standard variables: a process sends its spans to the receiver they name."""

from __future__ import annotations

import signal
from collections.abc import AsyncIterator

import pytest

from services.common import telemetry
from services.common.channels import open_channel
from tests.common.echo import Caller
from tests.common.processes import harbour
from tests.otlp import Receiver, receiving


@pytest.fixture
async def receiver() -> AsyncIterator[Receiver]:
    async with receiving() as receiver:
        yield receiver


async def test_spans_reach_the_receiver_before_the_process_ends(receiver: Receiver) -> None:
    async with harbour(OTEL_EXPORTER_OTLP_ENDPOINT=receiver.endpoint) as process:
        await process.logged("ready")
        async with open_channel(process.endpoint) as channel:
            with telemetry.tracer().start_as_current_span("test") as span:
                await Caller(channel).call("Unary", "ok")
        process.signal(signal.SIGTERM)
        assert await process.ended() == 0
    trace_id = span.get_span_context().trace_id.to_bytes(16, "big")
    assert [sent.trace_id for sent in receiver.spans()] == [trace_id]
    [resource] = receiver.resources
    names = {entry.key: entry.value.string_value for entry in resource.resource.attributes}
    assert names["service.name"] == "moorage-harbour"
    [line] = [line for line in process.lines if line["event"] == "call"]
    assert line["trace_id"] == trace_id.hex()


async def test_a_receiver_that_is_away_costs_nothing_but_spans() -> None:
    async with harbour(
        OTEL_EXPORTER_OTLP_ENDPOINT="http://127.0.0.1:1", OTEL_EXPORTER_OTLP_TIMEOUT="1"
    ) as process:
        await process.logged("ready")
        async with open_channel(process.endpoint) as channel:
            assert await Caller(channel).call("Unary", "ok") == "ok"
        process.signal(signal.SIGTERM)
        assert await process.ended() == 0
    assert process.noise == []


async def test_an_unknown_exporter_is_refused() -> None:
    async with harbour(OTEL_TRACES_EXPORTER="carrier-pigeon") as process:
        assert await process.ended() == 1
    assert process.events == [
        "refused to start: OTEL_TRACES_EXPORTER: 'carrier-pigeon' is none of otlp, console, none"
    ]
