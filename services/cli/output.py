"""What commands print: for people with rich, for programs as JSON, one document a line."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from textwrap import fill
from typing import Any

from google.protobuf.json_format import MessageToDict
from google.protobuf.message import Message
from rich.cells import cell_len, set_cell_size
from rich.console import Console
from rich.segment import Segment, Segments

# Everything that moves a cursor, rings, or changes colours; lines and tabs are kept.
_CONTROLS = re.compile(r"\r(?!\n)|[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")
_PICTURES = 0x2400
_GAP = "  "
# Less of a path says too little.
_LEAST = 20
_BELOW = "    "


def harmless(text: str) -> str:
    """The text without what a terminal would obey: agents and tools say anything."""
    return _CONTROLS.sub(_picture, text).replace("\r\n", "\n")


def _picture(match: re.Match[str]) -> str:
    code = ord(match[0])
    if code < 0x20:
        return chr(_PICTURES + code)
    return "\u2421" if code == 0x7F else "\ufffd"


def folded(text: str, indent: int, width: int = 80) -> str:
    """The text in lines of that width, if its words let it; all but the first begin further right."""
    below = " " * indent
    return fill(text, width, subsequent_indent=below, break_long_words=False, break_on_hyphens=False)


def _write(console: Console, text: str, style: str) -> None:
    # As it is: rich would wrap lines and replace tabs by its own idea of where a line began.
    console.print(Segments([Segment(harmless(text), console.get_style(style or "none"))]), end="")


def _ending(text: str, width: int) -> str:
    while cell_len(text) > width:
        text = f"…{text[2:]}"
    return text


def _aligned(cells: Sequence[str], widths: Sequence[int]) -> str:
    if cells[-1].startswith("\n"):
        return _aligned(cells[:-1], widths) + cells[-1]
    return _GAP.join(set_cell_size(cell, width) for cell, width in zip(cells, widths, strict=False)).rstrip()


def _console(*, stderr: bool = False) -> Console:
    return Console(stderr=stderr, highlight=False, soft_wrap=True)


@dataclass(slots=True)
class Output:
    """Where results go. Errors and hints go to standard error, so that output can be piped."""

    as_json: bool = False
    console: Console = field(default_factory=_console)
    errors: Console = field(default_factory=lambda: _console(stderr=True))
    # Called before something is said beside the output: both may be one terminal.
    on_aside: Callable[[], None] | None = None

    @property
    def is_lively(self) -> bool:
        """Whether there is a terminal whose lines can be drawn again."""
        return self.console.is_interactive and not self.as_json

    def message(self, message: Message) -> None:
        """Print a message as a line of JSON."""
        self.document(MessageToDict(message))

    def document(self, document: object) -> None:
        """Print any JSON value as one line."""
        sys.stdout.write(json.dumps(document, ensure_ascii=False) + "\n")
        sys.stdout.flush()

    def line(self, text: str, style: str = "") -> None:
        """Print a line for people."""
        self.piece(text + "\n", style)

    def piece(self, text: str, style: str = "") -> None:
        """Print a piece of a line for people, at once."""
        _write(self.console, text, style)

    def table(
        self, rows: Iterable[Sequence[str]], columns: Sequence[str] = (), *, below: bool = False
    ) -> None:
        """Print a table for people.

        Under a header the last column gives way to a narrow terminal: from its left, or by a line of its own,
        which it always has with `below`.
        """
        cells = [[harmless(cell) for cell in row] for row in rows]
        if below:
            columns = (*columns[:-1], f"\n{_BELOW}{columns[-1]}")
        if columns and cells:
            self._fit(cells, columns, below=below)
        elif not columns and not cells:
            return
        widths = [max(map(cell_len, column)) for column in zip(columns or cells[0], *cells, strict=True)]
        if columns:
            self.line(_aligned(columns, widths), "bold")
        for row in cells:
            self.line(_aligned(row, widths))

    def _fit(self, cells: list[list[str]], columns: Sequence[str], *, below: bool) -> None:
        if self.console.is_terminal:
            others = list(zip(columns, *cells, strict=True))[:-1]
            left = self.console.width - sum(max(map(cell_len, column)) + len(_GAP) for column in others)
            below = below or left < min(_LEAST, max(cell_len(row[-1]) for row in cells))
            room = max(self.console.width - len(_BELOW) if below else left, _LEAST)
            for row in cells:
                row[-1] = _ending(row[-1], room)
        if below:
            for row in cells:
                row[-1] = row[-1] and f"\n{_BELOW}{row[-1]}"

    def hint(self, text: str) -> None:
        """Say something that is not a result."""
        self._make_room()
        if self.as_json:
            self._aside({"hint": text})
        else:
            _write(self.errors, f"{text}\n", "dim")

    def error(self, text: str, hint: str = "", details: Mapping[str, Any] | None = None) -> None:
        """Say what went wrong: a line for people, or a document for programs."""
        self._make_room()
        if self.as_json:
            advice = {"hint": hint} if hint else {}
            self._aside({"error": {"message": text, **(details or {}), **advice}})
            return
        _write(self.errors, "error: ", "bold red")
        _write(self.errors, f"{text}\n", "")
        if hint:
            self.hint(hint)

    def _make_room(self) -> None:
        if self.on_aside is not None:
            self.on_aside()

    def _aside(self, document: object) -> None:
        sys.stderr.write(json.dumps(document, ensure_ascii=False) + "\n")
        sys.stderr.flush()
