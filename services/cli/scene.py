"""What goes on in a turn just now: what a terminal shows below everything that is finished."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from textwrap import wrap

from moorage.common.v1 import record_pb2, turn_pb2
from rich.cells import cell_len, chop_cells, set_cell_size
from rich.text import Text

from services.cli.output import harmless

STEPS = {"completed": "✓", "in_progress": "…"}
_FRAMES = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
_FRAMES_PER_SECOND = 10
_MOST_TOOLS = 4
_MOST_STEPS = 6


@dataclass(slots=True)
class Tool:
    """A tool call that has not ended; `began` in seconds since the epoch."""

    title: str
    began: float
    shown: str = ""


@dataclass(slots=True)
class Scene:
    """Told of by a transcript and by whoever asks what is waited for; drawn again and again."""

    # What Ctrl-C does.
    advice: str = ""
    # When the turn began, in seconds since the epoch; nothing is shown without one.
    began: float | None = None
    # The line that an agent has not ended yet.
    words: str = ""
    style: str = ""
    tools: dict[str, Tool] = field(default_factory=dict)
    plan: Sequence[record_pb2.PlanEntry] = ()
    usage: turn_pb2.TokenUsage | None = None
    # In words, while the turn says nothing itself.
    waits: str = ""

    def clear(self) -> None:
        """The turn is over."""
        self.began, self.words, self.plan, self.usage, self.waits = None, "", (), None, ""
        self.tools.clear()

    def rows(self, width: int, height: int, now: float) -> list[Text]:
        """Lines for a terminal of that size, none longer than it is wide; the last says what is waited for."""
        if self.began is None:
            return []
        room = max(height - 1 - _MOST_STEPS - 2 * _MOST_TOOLS, height // 3, 1)
        rows = [
            *_tail(self.words, width, room, self.style),
            *self._tool_rows(now),
            *_steps(self.plan),
            *(Text(row, "dim") for row in wrap(harmless(self._status(now)), max(width - 1, 1))),
        ]
        return [_fitting(row, width) for row in rows[-max(height - 1, 1) :]]

    def _tool_rows(self, now: float) -> Iterator[Text]:
        tools = list(self.tools.values())
        if len(tools) > _MOST_TOOLS:
            yield Text(f"… and {len(tools) - _MOST_TOOLS} more", "yellow")
        for tool in tools[-_MOST_TOOLS:]:
            yield Text(f"{_frame(now)} {tool.title} · {lasting(now - tool.began)}", "yellow")
            if last := tool.shown.rstrip().rpartition("\n")[2]:
                yield Text(f"  {last}", "dim yellow")

    def _status(self, now: float) -> str:
        parts = (
            self.waits or "working",
            lasting(0 if self.began is None else now - self.began),
            tokens(self.usage),
            self.advice,
        )
        return f"{_frame(now)} {' · '.join(filter(None, parts))}"


def lasting(seconds: float) -> str:
    """A length of time; clocks of two machines may differ, so it is never below nothing."""
    whole = max(0, int(seconds))
    return f"{whole} s" if whole < 60 else f"{whole // 60} min {whole % 60:02} s"


def tokens(usage: turn_pb2.TokenUsage | None) -> str:
    """What was consumed, in a few words."""
    if usage is None:
        return ""
    told = []
    if count := usage.input_tokens + usage.output_tokens:
        told.append(f"{count:,} tokens")
    if usage.context_used and usage.context_size:
        told.append(f"{100 * usage.context_used // usage.context_size} % of the context")
    if usage.cost:
        told.append(f"{usage.cost} {usage.currency}".strip())
    return " · ".join(told)


def _frame(now: float) -> str:
    return _FRAMES[int(now * _FRAMES_PER_SECOND) % len(_FRAMES)]


def _tail(words: str, width: int, most: int, style: str) -> list[Text]:
    """The end of a line that may be longer than the terminal is wide; whole it is printed when it has ended."""
    rows = chop_cells(harmless(words).expandtabs(), max(width - 1, 1)) if words else []
    if len(rows) > most:
        rows = [f"…{rows[-most][1:]}", *rows[-most + 1 :]] if most > 1 else [f"…{rows[-1][1:]}"]
    return [Text(row, style) for row in rows]


def _steps(plan: Sequence[record_pb2.PlanEntry]) -> Iterator[Text]:
    """A plan, around what is done now."""
    first = _first_open(plan)
    start = max(0, min(first - 1, len(plan) - _MOST_STEPS))
    for entry in plan[start : start + _MOST_STEPS]:
        style = "" if entry.status == "in_progress" else "dim"
        yield Text(f"{STEPS.get(entry.status, '·')} {entry.content}", style)


def _first_open(plan: Iterable[record_pb2.PlanEntry]) -> int:
    return next((place for place, entry in enumerate(plan) if entry.status != "completed"), 0)


def _fitting(row: Text, width: int) -> Text:
    """One line, with room for the cursor."""
    line = " ".join(harmless(row.plain).splitlines())
    if cell_len(line) >= width:
        line = f"{set_cell_size(line, max(width - 2, 1))}…"
    return Text(line, row.style)
