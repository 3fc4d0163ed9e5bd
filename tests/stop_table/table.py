"""The table of Stops: what is expected, as it is written in expected.md, and what was seen, in the same form."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import astuple, dataclass
from pathlib import Path

EXPECTED = Path(__file__).with_name("expected.md")
_HEADING = "## "


@dataclass(frozen=True, slots=True)
class Line:
    """What came of one Stop at one moment, read back after everything had settled.

    `answers` are those of the calls in their order: OK, `same` for a command that an earlier call
    had stored, or code and reason. `commands` are state and outcome of all rows of the session.
    """

    stop: str
    answers: str
    commands: str
    rows: str
    turn: str
    method: str
    runtime: str
    records: str
    next: str

    def __str__(self) -> str:
        return f"| {' | '.join(astuple(self))} |"


def expected(path: Path = EXPECTED) -> dict[str, dict[str, Line]]:
    """The lines by moment and Stop."""
    lines: dict[str, dict[str, Line]] = {}
    for moment, cells in _rows(path.read_text(encoding="utf-8")):
        line = Line(*cells)
        of_moment = lines.setdefault(moment, {})
        assert line.stop not in of_moment, f"{moment}: {line.stop} is there twice"
        of_moment[line.stop] = line
    return lines


def _rows(text: str) -> Iterator[tuple[str, list[str]]]:
    moment = ""
    for line in text.splitlines():
        if line.startswith(_HEADING):
            moment = line.removeprefix(_HEADING)
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        is_row = line.startswith("|") and cells[0] != "stop" and not set(cells[0]) <= set("-: ")
        if is_row:
            yield moment, cells
