"""An OTLP receiver for processes under test."""

from __future__ import annotations

from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import Any

import grpc
from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2, metrics_service_pb2_grpc
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2, trace_service_pb2_grpc


class Receiver(trace_service_pb2_grpc.TraceServiceServicer):
    """Keeps what it gets, in a thread of its own: processes that end send their last while a test waits for them."""

    def __init__(self) -> None:
        self.endpoint = ""
        self.resources: list[Any] = []
        self.metrics = MetricsReceiver()

    def Export(self, request: Any, context: Any) -> Any:
        """Of the OTLP contract."""
        self.resources.extend(request.resource_spans)
        return trace_service_pb2.ExportTraceServiceResponse()

    def spans(self) -> list[Any]:
        """All spans so far."""
        return [span for resource in self.resources for scope in resource.scope_spans for span in scope.spans]

    def by_service(self) -> dict[str, list[Any]]:
        """All spans so far, by the name of the service that sent them."""
        found: dict[str, list[Any]] = {}
        for resource in self.resources:
            names = {entry.key: entry.value.string_value for entry in resource.resource.attributes}
            spans = [span for scope in resource.scope_spans for span in scope.spans]
            found.setdefault(names["service.name"], []).extend(spans)
        return found


class MetricsReceiver(metrics_service_pb2_grpc.MetricsServiceServicer):
    """Keeps the metrics it gets."""

    def __init__(self) -> None:
        self.resources: list[Any] = []

    def Export(self, request: Any, context: Any) -> Any:
        """Of the OTLP contract."""
        self.resources.extend(request.resource_metrics)
        return metrics_service_pb2.ExportMetricsServiceResponse()

    def names(self) -> set[str]:
        """The names of all metrics so far."""
        return {
            metric.name
            for resource in self.resources
            for scope in resource.scope_metrics
            for metric in scope.metrics
        }


@asynccontextmanager
async def receiving() -> AsyncIterator[Receiver]:
    """A receiver for the block."""
    receiver, server = Receiver(), grpc.server(ThreadPoolExecutor(1))
    add: Any = trace_service_pb2_grpc.add_TraceServiceServicer_to_server
    add(receiver, server)
    add_metrics: Any = metrics_service_pb2_grpc.add_MetricsServiceServicer_to_server
    add_metrics(receiver.metrics, server)
    receiver.endpoint = f"http://127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    server.start()
    try:
        yield receiver
    finally:
        server.stop(0).wait()
