"""From bytes to JSON-RPC messages: splitting, decoding, and what to make of noise."""

from __future__ import annotations

import json
import re
from collections import deque
from collections.abc import Iterator
from typing import Any, Final

from services.runner.acp.errors import AgentProtocolError

Message = dict[str, Any]

REPLACEMENT: Final = "\ufffd"
_NOISE_KEPT: Final = 20
_NOISE_WIDTH: Final = 500
_SURROGATES: Final = re.compile("[\ud800-\udfff]")
_ESCAPED_SURROGATE: Final = re.compile(r"\\u[dD][89a-fA-F]")


class LineSplitter:
    """Cuts a stream of bytes at line ends; holds at most one line that is not complete."""

    def __init__(self, max_line: int) -> None:
        """`max_line` in bytes; a longer line is a protocol error."""
        self._max_line = max_line
        self._parts: list[bytes] = []
        self._length = 0

    def feed(self, data: bytes) -> Iterator[bytes]:
        """The lines that the data completes, without their ends."""
        *complete, rest = data.split(b"\n")
        for part in complete:
            self._keep(part)
            yield self.rest()
        self._keep(rest)

    def rest(self) -> bytes:
        """What has no line end yet; forgets it."""
        line = b"".join(self._parts)
        self._parts, self._length = [], 0
        return line

    def _keep(self, part: bytes) -> None:
        self._parts.append(part)
        self._length += len(part)
        if self._length > self._max_line:
            raise AgentProtocolError(f"the agent sent a line of more than {self._max_line} bytes")


class NoiseLog:
    """Lines on the agent's stdout that are no messages: counted, the last ones kept."""

    def __init__(self) -> None:
        """Empty."""
        self.count = 0
        self.lines: deque[str] = deque(maxlen=_NOISE_KEPT)

    def add(self, line: bytes) -> None:
        """Keep the line's beginning."""
        self.count += 1
        self.lines.append(line[:_NOISE_WIDTH].decode(errors="replace"))


def decode(line: bytes) -> Message | None:
    """The message of a line, without lone surrogates; None when the line is no JSON object."""
    text = line.decode(errors="replace")
    try:
        message = json.loads(text, parse_constant=_no_number)
        if _ESCAPED_SURROGATE.search(text):
            message = _without_surrogates(message)
    except (ValueError, RecursionError):
        return None
    return message if isinstance(message, dict) else None


def encode(message: Message) -> bytes:
    """One line; escapes keep it ASCII, so nothing in it can fail to be encoded."""
    return json.dumps(message, separators=(",", ":")).encode() + b"\n"


def _no_number(name: str) -> None:
    """NaN and Infinity are no JSON; agents written in Python send them all the same."""


def _without_surrogates(value: Any) -> Any:
    if isinstance(value, str):
        return _SURROGATES.sub(REPLACEMENT, value)
    if isinstance(value, list):
        return [_without_surrogates(item) for item in value]
    if isinstance(value, dict):
        return {_without_surrogates(key): _without_surrogates(item) for key, item in value.items()}
    return value
