"""How records look to people, and that nothing in them drives their terminal."""

from __future__ import annotations

import io

import pytest
from google.protobuf.text_format import Parse
from moorage.common.v1 import record_pb2
from rich.console import Console

from services.cli.output import Output, harmless
from services.cli.transcript import Transcript


class Screen:
    """What a transcript prints, without colours."""

    def __init__(self) -> None:
        self._file = io.StringIO()
        self.output = Output(console=Console(file=self._file, soft_wrap=True, width=40))
        self.transcript = Transcript(self.output)

    def show(self, *bodies: str) -> str:
        """Show records with these bodies, in protobuf's text format; gives all that is on the screen."""
        for body in bodies:
            self.transcript.show(Parse(f"body {{ {body} }}", record_pb2.Record()))
        return self._file.getvalue()


@pytest.fixture
def screen() -> Screen:
    return Screen()


def message(message_id: str, text: str) -> str:
    return f'agent_message {{ message_id: "{message_id}" content {{ text {{ text: "{text}" }} }} }}'


def thought(message_id: str, text: str) -> str:
    return f'thought {{ message_id: "{message_id}" content {{ text {{ text: "{text}" }} }} }}'


def test_pieces_of_one_message_share_a_line_and_others_begin_one(screen: Screen) -> None:
    assert screen.show(message("1", "Hel"), message("1", "lo"), message("2", "There")) == "Hello\nThere"
    assert screen.show(thought("2", "hm")) == "Hello\nThere\nhm"
    screen.transcript.close()
    screen.transcript.close()
    assert screen.show() == "Hello\nThere\nhm\n"


def test_a_message_that_ends_its_line_itself_gets_no_empty_one(screen: Screen) -> None:
    assert screen.show(message("1", "one\\n"), 'tool_call { title: "ls" }') == "one\n⚙ ls\n"


def test_long_lines_are_left_to_the_terminal(screen: Screen) -> None:
    assert screen.show(message("1", "x" * 100)) == "x" * 100


def test_a_prompt_is_quoted_line_by_line(screen: Screen) -> None:
    block = 'content {{ text {{ text: "{}" }} }}'
    prompt = f"user_message {{ {block.format('first' + chr(92) + 'nsecond')} {block.format('third')} }}"
    assert screen.show(prompt) == "> first\n> second\n> third\n"


@pytest.mark.parametrize(
    ("block", "shown"),
    [
        ('resource_link { uri: "file:///a" name: "a" }', "<file:///a>"),
        ('resource { uri: "file:///b" text: "long" }', "<file:///b>"),
        ('image { mime_type: "image/png" data: "x" }', "<image>"),
        ('audio { mime_type: "audio/wav" data: "x" }', "<audio>"),
    ],
)
def test_what_is_no_text_is_named(screen: Screen, block: str, shown: str) -> None:
    assert screen.show(f'agent_message {{ message_id: "1" content {{ {block} }} }}') == shown


def test_a_tool_shows_title_output_changes_and_its_end(screen: Screen) -> None:
    text = 'content { block { text { text: "one\\ntwo\\n" } } }'
    diff = 'content { diff { path: "/a.py" new_text: "" } }'
    assert screen.show(
        'tool_call { tool_call_id: "1" title: "Edit" status: TOOL_CALL_STATUS_PENDING }',
        'tool_update { tool_call_id: "1" status: TOOL_CALL_STATUS_IN_PROGRESS }',
        f'tool_update {{ tool_call_id: "1" {text} {diff} status: TOOL_CALL_STATUS_COMPLETED }}',
        'tool_update { tool_call_id: "2" status: TOOL_CALL_STATUS_FAILED }',
    ).splitlines() == ["⚙ Edit", "  one", "  two", "  changes /a.py", "✓", "✗"]


def test_a_plan_shows_how_far_it_is(screen: Screen) -> None:
    entries = " ".join(
        f'entries {{ content: "{step}" status: "{step}" }}'
        for step in ("completed", "in_progress", "pending")
    )
    assert screen.show(f"plan {{ {entries} }}").splitlines() == ["✓ completed", "… in_progress", "· pending"]


def test_an_ending_gives_its_cause_once(screen: Screen) -> None:
    error = 'error { code: "LEASE_LOST" message: "the runner is gone" }'
    lost = f"turn_ended {{ state: TURN_STATE_LOST end_reason: END_REASON_LEASE_LOST {error} }}"
    told = "LEASE_LOST: the runner is gone\n— LOST (LEASE_LOST)\n"
    assert screen.show(f"error {{ {error} }}", lost) == told
    assert screen.show(lost) == told * 2


def test_a_completed_turn_has_a_last_line(screen: Screen) -> None:
    ended = "turn_ended { state: TURN_STATE_COMPLETED end_reason: END_REASON_AGENT_ENDED }"
    assert screen.show("turn_started { token: 1 }", ended) == "— COMPLETED (AGENT_ENDED)\n"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain\ttext\nline", "plain\ttext\nline"),
        ("\x1b[2J\x1b]0;title\x07", "␛[2J␛]0;title␇"),
        ("over\rwritten\r\n", "over␍written\n"),
        ("\x7f\x9b1m\0", "␡\ufffd1m␀"),
        ("[bold]not markup[/]", "[bold]not markup[/]"),
    ],
)
def test_a_terminal_obeys_nothing_in_a_text(screen: Screen, text: str, shown: str) -> None:
    assert harmless(text) == shown
    screen.output.piece(text)
    assert screen.show() == shown


def test_a_table_is_aligned_and_nothing_in_it_is_cut(screen: Screen) -> None:
    screen.output.table([("a", "x" * 60, ""), ("漢字", "y", "z\x1b")], ("one", "two", "three"))
    assert screen.show().splitlines() == [
        f"one   two{' ' * 59}three",
        f"a     {'x' * 60}",
        f"漢字  y{' ' * 61}z␛",
    ]
    screen.output.table([("name", "value")])
    assert screen.show().splitlines()[-1] == "name  value"


@pytest.mark.parametrize(
    ("width", "shown"),
    [
        (40, ["first    /a/long/way/to/the/end/of/it"]),
        (32, ["first    …g/way/to/the/end/of/it"]),
        (30, ["first    …way/to/the/end/of/it"]),
        (28, ["first", "    …ng/way/to/the/end/of/it"]),
        (5, ["first", "    …ay/to/the/end/of/it"]),
    ],
)
def test_a_narrow_terminal_gets_the_end_of_the_last_column_or_a_line_for_it(
    width: int, shown: list[str]
) -> None:
    file = io.StringIO()
    console = Console(file=file, soft_wrap=True, width=width, force_terminal=True, color_system=None)
    Output(console=console).table([("first", "/a/long/way/to/the/end/of/it")], ("session", "works in"))
    assert file.getvalue().splitlines() == ["session  works in", *shown]
