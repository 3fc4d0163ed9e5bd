"""The live view of a turn: on a terminal, and what it is made of."""

from __future__ import annotations

import asyncio
import io
import re

import pytest
from google.protobuf.text_format import Parse
from moorage.common.v1 import record_pb2, turn_pb2
from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from services.cli.live import LiveView
from services.cli.live_transcript import LiveTranscript
from services.cli.output import Output
from services.cli.scene import Scene, Tool, lasting, tokens
from tests.cli.programs import Place
from tests.cli.screens import on_terminal
from tests.conditions import eventually

pytestmark = pytest.mark.timeout(120)

GATE = "run while [ ! -e go ]; do sleep 0.05; done; echo through"
STARTED = "turn_started { token: 1 }"
ENDED = "turn_ended { state: TURN_STATE_COMPLETED end_reason: END_REASON_AGENT_ENDED }"


class Shown:
    """A transcript of which only whole things are printed."""

    def __init__(self) -> None:
        self._file = io.StringIO()
        self.scene = Scene("Ctrl-C leaves it")
        self._transcript = LiveTranscript(
            Output(console=Console(file=self._file, width=60, soft_wrap=True)), self.scene
        )

    def after(self, seconds: int, *bodies: str) -> list[str]:
        """Show records of that time; gives the lines printed so far."""
        for body in bodies:
            record = Parse(f"create_time {{ seconds: {seconds} }} body {{ {body} }}", record_pb2.Record())
            self._transcript.show(record)
        return self._file.getvalue().splitlines()

    def leave(self) -> None:
        """Look on no more."""
        self._transcript.leave()

    def rows(self, now: int, width: int = 60) -> list[str]:
        """What is drawn below."""
        return [row.plain for row in self.scene.rows(width, 24, now)]


def said(text: str) -> str:
    return f'agent_message {{ message_id: "1" content {{ text {{ text: "{text}" }} }} }}'


def planned(*statuses: str) -> str:
    return f"plan {{ {' '.join(f'entries {{ content: {status!r} status: {status!r} }}' for status in statuses)} }}"


def test_a_line_is_printed_once_it_has_ended() -> None:
    shown = Shown()
    assert shown.after(10, STARTED, said("Hel"), said("lo\\nTh")) == ["Hello"]
    assert shown.rows(12) == ["Th", "⠋ working · 2 s · Ctrl-C leaves it"]
    assert shown.after(11, said("ere"), 'thought { message_id: "2" }') == ["Hello", "There"]


def test_a_tool_is_printed_when_it_has_ended_with_what_it_showed_last() -> None:
    shown = Shown()
    call = 'tool_call { tool_call_id: "1" title: "Build" status: TOOL_CALL_STATUS_PENDING }'
    text = 'content {{ block {{ text {{ text: "{}" }} }} }}'
    update = 'tool_update {{ tool_call_id: "1" {} }}'
    assert shown.after(10, STARTED, call, update.format(text.format("one")), said("begun")) == []
    assert shown.after(10, update.format(text.format("one\\ntwo\\n"))) == []
    assert shown.rows(13) == ["begun", "⠋ Build · 3 s", "  two", "⠋ working · 3 s · Ctrl-C leaves it"]
    assert shown.after(14, update.format('title: "Build it" status: TOOL_CALL_STATUS_FAILED')) == [
        "begun",
        "✗ Build it · 4 s",
        "  one",
        "  two",
    ]
    assert shown.rows(14) == ["⠋ working · 4 s · Ctrl-C leaves it"]


def test_a_tool_that_is_over_at_once_or_was_never_told_of_is_printed() -> None:
    shown = Shown()
    over = 'tool_call { tool_call_id: "1" title: "Look" status: TOOL_CALL_STATUS_COMPLETED }'
    unknown = 'tool_update { tool_call_id: "2" status: TOOL_CALL_STATUS_FAILED }'
    assert shown.after(1, STARTED, over, unknown) == ["✓ Look", "✗"]


def test_what_did_not_end_is_printed_at_the_end() -> None:
    shown = Shown()
    call = 'tool_call { tool_call_id: "1" title: "Build" }'
    assert shown.after(1, STARTED, call, planned("completed", "in_progress"), said("and")) == []
    usage = "usage { usage { input_tokens: 1200 output_tokens: 34 } }"
    assert shown.after(62, usage, ENDED) == [
        "and",
        "- Build · 1 min 01 s",
        "✓ completed",
        "… in_progress",
        "— COMPLETED (AGENT_ENDED) · 1 min 01 s · 1,234 tokens",
    ]
    assert shown.rows(70) == []


def test_of_a_very_long_line_the_end_is_drawn_and_all_of_it_is_printed() -> None:
    shown = Shown()
    for number in range(2000):
        shown.after(1, STARTED, said(f"{number:09},"))
    assert len(shown.scene.words) < 10_000
    assert shown.rows(1)[-2].endswith("001999,")
    [line] = shown.after(1, said("\\n"))
    assert line == "".join(f"{number:09}," for number in range(2000))


async def test_a_fault_of_the_view_ends_it_and_is_told() -> None:
    class Faulty(Scene):
        def rows(self, width: int, height: int, now: float) -> list[Text]:
            raise ZeroDivisionError(f"{width} {height} {now}")

    output = Output(console=Console(file=io.StringIO(), width=60, height=20, force_terminal=True))
    view = LiveView(output, Faulty("", 1.0))
    with pytest.raises(ZeroDivisionError):
        async with view.shown():
            await eventually(lambda: output.on_aside is not None and len(asyncio.all_tasks()) == 1)
    assert output.on_aside is None


def test_whoever_leaves_sees_what_had_not_ended() -> None:
    shown = Shown()
    shown.after(1, STARTED, 'tool_call { tool_call_id: "1" title: "Build" }', said("and"))
    shown.leave()
    assert shown.after(1) == ["and", "⚙ Build"]
    assert shown.rows(2) == []


def test_a_plan_is_printed_once_it_is_carried_out() -> None:
    shown = Shown()
    assert shown.after(1, STARTED, planned("in_progress", "pending")) == []
    assert shown.rows(1)[:2] == ["… in_progress", "· pending"]
    assert shown.after(1, planned("completed", "completed"), ENDED)[:-1] == ["✓ completed"] * 2


@pytest.mark.parametrize(("width", "height"), [(80, 24), (40, 10), (20, 5), (10, 3), (2, 2)])
def test_what_is_drawn_fits_the_terminal(width: int, height: int) -> None:
    scene = Scene("Ctrl-C leaves it", 0.0, words="漢字 and\tmore \x1b[2J" * 99)
    scene.waits = "waiting for the agent"
    scene.tools = {str(n): Tool(f"tool {n}\nof many {'x' * 90}", 0.0, "out\n\nput\n") for n in range(9)}
    steps = [*["completed"] * 9, "in_progress", *["pending"] * 9]
    scene.plan = [record_pb2.PlanEntry(content=f"step {n}", status=s) for n, s in enumerate(steps)]
    rows = [row.plain for row in scene.rows(width, height, 5.0)]
    assert 0 < len(rows) < height
    assert all(cell_len(row) < max(width, 3) and "\x1b" not in row and "\n" not in row for row in rows)
    if height > 20:
        assert rows[-1] == "⠋ waiting for the agent · 5 s · Ctrl-C leaves it"
        assert "… step 9" in rows
        assert "… and 5 more" in rows


def test_lengths_and_consumption_in_words() -> None:
    assert [lasting(seconds) for seconds in (-1, 59.9, 60, 3725)] == [
        "0 s",
        "59 s",
        "1 min 00 s",
        "62 min 05 s",
    ]
    usage = turn_pb2.TokenUsage(context_used=50, context_size=200, cost="0.02", currency="USD")
    assert tokens(usage) == "25 % of the context · 0.02 USD"
    assert tokens(turn_pb2.TokenUsage()) == tokens(None) == ""


def test_a_turn_is_drawn_while_it_goes_on_and_leaves_its_transcript(here: Place) -> None:
    here.moorage("session", "create", "--directory", ".", "--approval", "allow")
    with on_terminal(here, "run", f"say look\nplease\n{GATE}\nsay bye") as terminal:
        terminal.until("Ctrl-C stops or leaves it")
        terminal.type(b"typed too early\n")
        drawn = terminal.until("waiting for the agent")
        assert re.fullmatch(r"[⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏] while .* · \d+ s", drawn[-2])
        assert not terminal.shows_cursor()
        (here.work / "go").touch()
        last = terminal.ended()
        assert terminal.process.wait() == 0
        assert terminal.shows_cursor()
    assert last[:4] == ["> say look", "> please", f"> {GATE}", "> say bye"]
    assert last[4] == "look"
    [tool] = [place for place, line in enumerate(last) if line.startswith("✓ while")]
    assert last[tool + 1] == "  through"
    assert last[-2] == "bye"
    assert last[-1].startswith("— COMPLETED (AGENT_ENDED)")
    assert "Ctrl-C" not in "".join(last)
    assert "typed" not in "".join(last)


def test_ctrl_c_leaves_the_terminal_as_it_was(here: Place) -> None:
    with on_terminal(here, "run", "say begun\nsleep 600") as terminal:
        terminal.until("waiting for the agent")
        terminal.type(b"early\x03")
        asked = terminal.until("stop the turn?")
        assert asked[-4:] == [
            "> sleep 600",
            "begun",
            "Sleeping 600 s.",
            "stop the turn? [y: stop, n: let it go on]",
        ]
        terminal.type(b"y\n")
        last = terminal.ended()
        assert terminal.process.wait() == 3
        assert terminal.shows_cursor()
    assert "let it go on] y" in last[-3] + last[-2]


def test_a_terminal_that_cannot_be_drawn_on_gets_lines(here: Place) -> None:
    with on_terminal(here, "run", "run echo one\nsay two", term="dumb") as terminal:
        last = terminal.ended()
        assert terminal.process.wait() == 0
    assert [line for line in last if line.startswith(("⚙", "✓", "  one"))] == ["⚙ echo one", "  one", "✓"]
