"""A served echo service and its caller."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
import structlog
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from services.common.channels import open_channel
from services.common.logs import configure_logging
from services.common.serving import ServiceServer
from services.common.settings import ServiceSettings
from tests.common.echo import SERVICE, Caller, Echo
from tests.spans import exporter


def pytest_configure() -> None:
    """Before the first span."""
    exporter()


@pytest.fixture
def spans() -> InMemorySpanExporter:
    """The spans that ended in this test."""
    exporter().clear()
    return exporter()


@pytest.fixture
def settings() -> ServiceSettings:
    """A free port, short waits."""
    return ServiceSettings(listen="127.0.0.1:0", shutdown_grace=0.2, readiness_interval=0.05)


class Logs:
    """What a service wrote."""

    def __init__(self, stream: io.StringIO) -> None:
        self._stream = stream

    @property
    def text(self) -> str:
        return self._stream.getvalue()

    def lines(self, event: str) -> list[dict[str, Any]]:
        parsed = [json.loads(line) for line in self.text.splitlines()]
        return [line for line in parsed if line["event"] == event]


@pytest.fixture
def logs(settings: ServiceSettings) -> Iterator[Logs]:
    """Logs as a service writes them, put back afterwards."""
    root, stream = logging.getLogger(), io.StringIO()
    handlers, level, raises = root.handlers[:], root.level, logging.raiseExceptions
    before = structlog.get_config()
    configure_logging(settings.model_copy(update={"log_level": "debug"}), "test", stream)
    yield Logs(stream)
    structlog.configure(**before)
    root.handlers[:] = handlers
    root.setLevel(level)
    logging.raiseExceptions = raises


@pytest.fixture
def echo() -> Echo:
    """The servicer."""
    return Echo()


@pytest.fixture
async def server(settings: ServiceSettings, echo: Echo) -> AsyncIterator[ServiceServer]:
    """A server of the echo service, started."""
    server = ServiceServer(settings, name="test")
    server.add(echo.add_to, SERVICE)
    await server.start()
    yield server
    await server.stop()


@pytest.fixture
async def caller(server: ServiceServer) -> AsyncIterator[Caller]:
    """Calls the echo service over a channel as services open it."""
    async with open_channel(server.endpoint) as channel:
        yield Caller(channel)
