"""Forms, answers that stand, kept prompts, interrupts and the line that says what is waited for."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from services.cli.forms import Misfit, properties_of, values_of
from tests.cli.programs import Place
from tests.cli.screens import on_terminal
from tests.cli.test_orders import ENDLESS, read_until, session_here, terminal

pytestmark = pytest.mark.timeout(120)

SCHEMA = json.dumps(
    {
        "type": "object",
        "properties": {
            "name": {"type": "string", "title": "Your name"},
            "level": {"type": "string", "oneOf": [{"const": "low"}, {"const": "high"}], "default": "low"},
            "count": {"type": "integer"},
            "share": {"type": "number"},
            "loud": {"type": "boolean"},
            "tags": {"type": "array", "items": {"enum": ["a", "b"]}},
        },
        "required": ["name"],
    }
)


def documents(text: str) -> list[dict[str, Any]]:
    """JSON lines."""
    return [json.loads(line) for line in text.splitlines()]


def test_texts_become_the_values_that_a_form_asks_for() -> None:
    given = ["name=Ann=1", "level=high", "count=3", "share=0.5", "loud=yes", "tags=a, b"]
    assert json.loads(values_of(SCHEMA, given)) == {
        "name": "Ann=1",
        "level": "high",
        "count": 3,
        "share": 0.5,
        "loud": True,
        "tags": ["a", "b"],
    }
    for pair in ("nobody=1", "name", "level=middle", "count=1.5", "share=much", "loud=perhaps"):
        with pytest.raises(Misfit):
            values_of(SCHEMA, [pair])
    labels = [each.label for each in properties_of(SCHEMA)]
    assert labels[:2] == ["Your name", "level (low | high; default low; may be empty)"]


def test_a_form_is_filled_in_on_the_terminal(here: Place) -> None:
    with on_terminal(here, "run", "fill in name, port") as terminal:
        terminal.until("answer (number, y or n): ")
        terminal.type(b"y\n")
        terminal.until("Name: ")
        terminal.type(b"Ann\n")
        terminal.until("Port (may be empty): ")
        terminal.type(b"Brest\n")
        shown = terminal.ended()
        assert terminal.process.wait() == 0
    assert shown[shown.index("name: Ann") + 1] == "port: Brest"


def test_ctrl_d_in_a_form_submits_nothing(here: Place) -> None:
    with terminal(here, "run", "fill in name, port") as (process, screen):
        read_until(screen, "answer (number, y or n): ")
        os.write(screen, b"y\n")
        read_until(screen, "Name: ")
        os.write(screen, b"\n")
        read_until(screen, "it has to be filled in")
        os.write(screen, b"\x04")
        told = read_until(screen, "shows how it goes on")
        assert "--value name=… --value port=…" in told
        assert process.wait() == 5
    [session] = documents(here.moorage("session", "get", "--json").stdout)
    assert session["turn"]["state"] == "TURN_STATE_AWAITING_INPUT"
    here.moorage("session", "close")


def test_a_form_is_filled_in_by_flags(here: Place) -> None:
    asked = here.moorage("run", "fill in name, port")
    assert asked.returncode == 5
    assert asked.stdout.splitlines()[-1] == "? Please fill in name, port"
    assert "--value name=… --value port=…` or `moorage answer decline " in asked.stderr
    shown = here.moorage("session", "get").stdout
    assert ["port", "Port", "(may", "be", "empty)"] in [line.split() for line in shown.splitlines()]
    assert "--value name=… --value port=…` or `moorage answer decline " in shown
    misfit = here.moorage("answer", "accept", "--value", "colour=red")
    assert misfit.returncode == 2
    assert "--value name=… --value port=…" in misfit.stderr
    missing = here.moorage("answer", "accept", "--value", "port=Brest")
    assert missing.returncode == 2
    assert "values.name" in missing.stderr
    answered = here.moorage("answer", "accept", "--value", "name=Ann", "--value", "port=Brest")
    assert (answered.returncode, answered.stderr) == (0, "")
    shown = here.moorage("watch", "--no-follow").stdout
    while "port: Brest" not in shown:
        shown = here.moorage("watch", "--no-follow").stdout
    assert "name: Ann" in shown


def test_an_answer_that_stands_is_listed_and_revoked(here: Place) -> None:
    assert here.moorage("run", "ask to run touch always.txt").returncode == 5
    assert here.moorage("answer", "always").returncode == 0
    again = here.moorage("run", "ask to run touch always.txt", "--if-busy", "enqueue")
    assert again.returncode == 0, again.stderr
    assert "  answered once, by an answer that stands" in again.stdout.splitlines()
    [standing] = documents(here.moorage("approval", "list", "--json").stdout)
    assert (standing["title"], standing["toolKind"], standing["allow"]) == (
        "touch always.txt",
        "execute",
        True,
    )
    listed = here.moorage("approval", "list").stdout.splitlines()
    assert listed[1].split() == [standing["standingAnswerId"], "allow", "execute", "touch", "always.txt"]
    revoked = here.moorage("approval", "revoke", standing["standingAnswerId"])
    assert revoked.stdout == "revoked: allow execute touch always.txt\n"
    assert here.moorage("approval", "list").stderr == "no answer stands\n"
    assert here.moorage("run", "ask to run touch always.txt").returncode == 5
    here.moorage("stop")
    assert here.moorage("approval", "revoke", "standing_unknown").returncode == 1


def test_a_refused_prompt_is_kept_with_the_command_to_try_again(here: Place) -> None:
    busy = here.start("run", ENDLESS, "--json")
    while "agentMessage" not in busy.document().get("record", {}).get("body", {}):
        pass
    words = "say what it's\nsay worth"
    refused = here.moorage("run", words)
    assert refused.returncode == 1
    first, *_, told = refused.stderr.splitlines()
    assert first.startswith("error: ")
    command = shlex.split(told.partition("to try again: ")[2])
    assert command[:3] == ["moorage", "run", "--prompt-file"]
    file = Path(command[3])
    assert file.read_text(encoding="utf-8") == words
    assert file.stat().st_mode & 0o777 == 0o600
    here.moorage("stop")
    busy.ended()
    again = here.moorage(*command[1:])
    assert again.returncode == 0
    assert "what it's" in again.stdout


def test_a_prompt_is_not_kept_where_trying_again_cannot_help(here: Place) -> None:
    assert here.moorage("run", "say hello").returncode == 0
    session = json.loads(here.moorage("session", "get", "--json").stdout)["sessionId"]
    assert here.moorage("session", "close").returncode == 0
    for name, reason in ((session, "SESSION_CLOSED"), ("nowhere", "SESSION_NOT_FOUND")):
        refused = here.moorage("run", "say it", "--session", name)
        assert refused.returncode == 1
        assert reason in refused.stderr
        assert "to try again" not in refused.stderr


def test_a_prompt_file_that_cannot_be_read_is_one_line(place: Place) -> None:
    missing = place.moorage("run", "--prompt-file", "/nope")
    assert missing.returncode == 2
    assert missing.stderr == "error: /nope cannot be read: No such file or directory\n"


@pytest.mark.parametrize(
    ("choice", "code", "told"), [("stop", 3, "STOPPED after"), ("detach", 130, "the turn goes on")]
)
def test_what_ctrl_c_means_can_be_said_before(here: Place, choice: str, code: int, told: str) -> None:
    turn = here.start("run", ENDLESS, "--on-interrupt", choice)
    while turn.line() != "7\n":
        pass
    turn.signal(signal.SIGINT)
    ended, output, errors = turn.ended()
    assert ended == code
    assert told in output + errors
    here.moorage("session", "close")


def test_a_silent_turn_says_on_a_terminal_what_it_waits_for(here: Place) -> None:
    with terminal(here, "run", "say begun\nsleep 600") as (process, screen):
        shown = read_until(screen, "waiting for the agent")
        assert "begun" in shown
        here.moorage("stop")
        rest = read_until(screen, "STOPPED (USER_STOP)")
        assert process.wait() == 3
    # The line is taken away before another one is printed.
    assert re.search(r"\x1b\[2K.*— STOPPED", rest, re.DOTALL)


def test_a_new_session_says_how_its_agent_is_set(here: Place) -> None:
    flags = ("--model", "large", "--mode", "plan", "--agent-option", "level=high")
    servers = ("--mcp", "files=serve --all 'two words'", "--mcp", "far=http://127.0.0.1:1/mcp")
    made = here.moorage("session", "create", *flags, *servers, "--json")
    [session] = documents(made.stdout)
    assert session["agent"] == {
        "profile": "demo",
        "model": "large",
        "mode": "plan",
        "options": {"level": "high"},
        "mcpServers": [
            {"name": "files", "stdio": {"command": "serve", "args": ["--all", "two words"]}},
            {"name": "far", "http": {"url": "http://127.0.0.1:1/mcp"}},
        ],
    }
    ran = here.moorage("run", "say too late", "--mode", "plan")
    assert ran.returncode == 1
    assert "NOT_OFFERED: the agent offers no choice of its mode" in ran.stdout
    assert here.moorage("session", "close", "--all").returncode == 2
    assert session_here(here)["state"] == "SESSION_STATE_OPEN"
    assert here.moorage("session", "close", "--all", "--yes").returncode == 0
    assert here.moorage("run", "say x", "--mcp", "no-command").returncode == 2


def test_the_shell_completes_commands_and_options() -> None:
    program = Path(sys.executable).with_name("moorage")
    for words, completed in (("moorage ver", "verify"), ("moorage run --on-int", "--on-interrupt")):
        variables = {
            **os.environ,
            "_MOORAGE_COMPLETE": "complete_bash",
            "COMP_WORDS": words,
            "COMP_CWORD": str(words.count(" ")),
        }
        ended = subprocess.run([program], env=variables, capture_output=True, text=True, timeout=60)
        assert ended.stdout.split() == [completed]
