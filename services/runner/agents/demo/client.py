"""What the agent has its client do: files and terminals."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from .turn import Cancelled, Turn
from .wire import Message

OUTPUT_LIMIT = 64 * 1024


def read_text(turn: Turn, file: str, line: str | None, limit: str | None) -> str:
    """The lines of a file, relative to the session's directory; all where none are named."""
    part = {name: int(value) for name, value in (("line", line), ("limit", limit)) if value}
    return str(turn.ask("fs/read_text_file", path=path_of(turn, file), **part).get("content"))


def write_text(turn: Turn, file: str, text: str) -> None:
    turn.ask("fs/write_text_file", path=path_of(turn, file), content=text)


def values(turn: Turn, message: str, names: list[str]) -> Message | None:
    """A text for each name, as a user fills it in; None where that was declined."""
    properties = {name: {"type": "string", "title": name.capitalize()} for name in names}
    schema = {"type": "object", "properties": properties, "required": names[:1]}
    answer = turn.ask("elicitation/create", mode="form", message=message, requestedSchema=schema)
    if answer.get("action") == "cancel":
        raise Cancelled
    return dict(answer.get("content") or {}) if answer.get("action") == "accept" else None


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
