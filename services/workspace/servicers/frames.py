"""What a caller of Exec says: how the command is to run, and afterwards the frames of its stream."""

from __future__ import annotations

import signal
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Final

from moorage.workspace.v1 import workspace_pb2

from services.common.errors import InvalidArgument
from services.common.validation import check_id, check_project, check_size, check_text, seconds_of
from services.workspace.exec.environment import Wishes, check_wishes

MAX_STDIN: Final = 256 * 1024
_MAX_SIDE: Final = 0xFFFF


@dataclass(frozen=True, slots=True)
class Command:
    """A command as it will be run. `timeout` is in seconds, `terminal` is (columns, rows)."""

    project: str
    workspace_id: str
    arguments: tuple[str, ...]
    directory: str
    environment: Wishes
    timeout: float | None
    terminal: tuple[int, int] | None


async def first_of(frames: AsyncIterator[workspace_pb2.ExecRequest]) -> workspace_pb2.ExecStart:
    """The first message of a stream."""
    async for frame in frames:
        if frame.HasField("start"):
            return frame.start
        break
    raise InvalidArgument.of("start", "must be the first message")


def command_of(start: workspace_pb2.ExecStart) -> Command:
    """The command that is asked for, its fields checked."""
    return Command(
        project=check_project(start.project, "start.project"),
        workspace_id=check_id("start.workspace_id", start.workspace_id),
        arguments=_arguments(start),
        directory=check_text("start.directory", start.directory),
        environment=check_wishes(start.inherit_environment, start.environment),
        timeout=_timeout(start) if start.HasField("timeout") else None,
        terminal=size_of("start.terminal", start.terminal) if start.HasField("terminal") else None,
    )


def size_of(field: str, size: workspace_pb2.TerminalSize) -> tuple[int, int]:
    """A terminal's columns and rows."""
    for name, value in (("columns", size.columns), ("rows", size.rows)):
        if not 0 < value <= _MAX_SIDE:
            raise InvalidArgument.of(f"{field}.{name}", f"must be from 1 to {_MAX_SIDE}")
    return size.columns, size.rows


def signal_of(frame: workspace_pb2.ExecSignal) -> int:
    """The number of a named signal."""
    try:
        return signal.Signals[frame.name].value
    except KeyError:
        raise InvalidArgument.of("signal.name", f"{frame.name!r} is no signal") from None


def check_stdin(data: bytes) -> bytes:
    """A piece of standard input."""
    check_size("stdin", data, MAX_STDIN)
    return data


def _arguments(start: workspace_pb2.ExecStart) -> tuple[str, ...]:
    if not start.command or not start.command[0]:
        raise InvalidArgument.of("start.command", "must name a program")
    return tuple(check_text(f"start.command[{index}]", text) for index, text in enumerate(start.command))


def _timeout(start: workspace_pb2.ExecStart) -> float:
    seconds = seconds_of("start.timeout", start.timeout)
    if seconds <= 0:
        raise InvalidArgument.of("start.timeout", "must be positive")
    return seconds
