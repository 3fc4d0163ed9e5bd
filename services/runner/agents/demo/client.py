"""What the agent has its client do: files and terminals."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from .turn import Turn

OUTPUT_LIMIT = 64 * 1024


def read_text(turn: Turn, file: str, line: str | None, limit: str | None) -> str:
    """The lines of a file, relative to the session's directory; all where none are named."""
    part = {name: int(value) for name, value in (("line", line), ("limit", limit)) if value}
    return str(turn.ask("fs/read_text_file", path=path_of(turn, file), **part).get("content"))


def write_text(turn: Turn, file: str, text: str) -> None:
    turn.ask("fs/write_text_file", path=path_of(turn, file), content=text)


@contextmanager
def terminal(turn: Turn, command: str) -> Iterator[str]:
    """A terminal that runs the command; killed if need be and released in the end."""
    params = {"command": command, "cwd": turn.session.directory, "outputByteLimit": OUTPUT_LIMIT}
    terminal_id = str(turn.ask("terminal/create", **params).get("terminalId"))
    try:
        yield terminal_id
    finally:
        turn.tell("terminal/release", terminalId=terminal_id)


def path_of(turn: Turn, file: str) -> str:
    return str(Path(turn.session.directory, file))
