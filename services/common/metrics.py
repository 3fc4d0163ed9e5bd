"""OpenTelemetry metrics by the standard OTEL_* variables; nothing is kept where none are exported.

They are exported when an exporter or an endpoint is named (OTEL_METRICS_EXPORTER,
OTEL_EXPORTER_OTLP_METRICS_ENDPOINT, OTEL_EXPORTER_OTLP_ENDPOINT), each OTEL_METRIC_EXPORT_INTERVAL
milliseconds.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

from opentelemetry import metrics

from services.common.errors import StartupRefused

if TYPE_CHECKING:
    from opentelemetry.sdk.metrics.export import MetricExporter
    from opentelemetry.sdk.resources import Resource

_METER: Final = metrics.get_meter("moorage")
_ENDPOINTS: Final = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT")


def meter() -> metrics.Meter:
    """The meter of the product, also before the provider is installed."""
    return _METER


def configure_metrics(resource: Resource) -> None:
    """Install the meter provider of this process, if its metrics go anywhere."""
    exporter = _exporter()
    if exporter is None:
        return
    # Imported late, here and below: what most processes need not wait for.
    from opentelemetry.sdk.metrics import MeterProvider  # noqa: PLC0415
    from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader  # noqa: PLC0415

    reader = PeriodicExportingMetricReader(exporter)
    metrics.set_meter_provider(MeterProvider([reader], resource=resource))


def shutdown_metrics() -> None:
    """Send what is still waiting."""
    provider = metrics.get_meter_provider()
    shutdown = getattr(provider, "shutdown", None)
    if shutdown is not None:
        shutdown()


def _exporter() -> MetricExporter | None:
    named = os.environ.get("OTEL_METRICS_EXPORTER", "")
    wanted = named or ("otlp" if any(os.environ.get(name) for name in _ENDPOINTS) else "none")
    if wanted == "none":
        return None
    if wanted == "console":
        from opentelemetry.sdk.metrics.export import ConsoleMetricExporter  # noqa: PLC0415 (see above)

        return ConsoleMetricExporter()
    if wanted != "otlp":
        raise StartupRefused(f"OTEL_METRICS_EXPORTER: {wanted!r} is none of otlp, console, none")
    from opentelemetry.exporter.otlp.proto.grpc.metric_exporter import OTLPMetricExporter  # noqa: PLC0415

    return OTLPMetricExporter()
