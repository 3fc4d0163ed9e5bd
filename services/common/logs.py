"""Structured logs on stderr: one JSON object a line, with the trace and what the call is about."""

from __future__ import annotations

import logging
import sys
from typing import Final, TextIO

import structlog
from opentelemetry import trace
from structlog.typing import EventDict, Processor, WrappedLogger

from services.common.settings import CommonSettings

_QUIET: Final = ("asyncio", "grpc", "grpc._cython", "opentelemetry", "alembic", "sqlalchemy")


def configure_logging(settings: CommonSettings, service: str, stream: TextIO | None = None) -> None:
    """Send structlog's and the standard library's records to stderr (or `stream`) in one format."""
    shared = _shared(service)
    formatter = structlog.stdlib.ProcessorFormatter(
        foreign_pre_chain=shared,
        processors=[
            structlog.stdlib.ProcessorFormatter.remove_processors_meta,
            *_rendered(settings.log_format),
        ],
    )
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(formatter)
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(settings.log_level.upper())
    for name in _QUIET:
        logging.getLogger(name).setLevel(logging.WARNING)
    # A reader that went away must not turn each line into a traceback.
    logging.raiseExceptions = False
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            *shared,
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=False,
    )


def get_logger(name: str) -> structlog.stdlib.BoundLogger:
    """The logger of a module; usable before logging is configured."""
    logger: structlog.stdlib.BoundLogger = structlog.stdlib.get_logger(name)
    return logger


def bind(**values: str) -> None:
    """Add to every later line of this task and the tasks it starts: project, session, turn, …"""
    structlog.contextvars.bind_contextvars(**values)


def _shared(service: str) -> list[Processor]:
    def name_service(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
        event["service"] = service
        return event

    return [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.stdlib.ExtraAdder(),
        name_service,
        _add_trace,
    ]


def _add_trace(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    context = trace.get_current_span().get_span_context()
    if context.is_valid:
        event["trace_id"] = trace.format_trace_id(context.trace_id)
        event["span_id"] = trace.format_span_id(context.span_id)
    return event


def _rendered(log_format: str) -> list[Processor]:
    if log_format == "console":
        # The default formatter shows local variables, and with them secrets.
        plain = structlog.dev.plain_traceback
        return [structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty(), exception_formatter=plain)]
    return [
        structlog.processors.format_exc_info,
        structlog.processors.UnicodeDecoder(),
        structlog.processors.JSONRenderer(ensure_ascii=False, default=str),
    ]
