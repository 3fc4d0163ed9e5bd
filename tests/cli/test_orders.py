"""`stop`, `answer`, `session close`, `lease`, `workspace` and `doctor` against a running `up`."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.cli.programs import MOORAGE, Place, Program, error_of

pytestmark = pytest.mark.timeout(120)

ENDLESS = "count to 100000 every 0.05"


def documents(text: str) -> list[dict[str, Any]]:
    """JSON lines."""
    return [json.loads(line) for line in text.splitlines()]


def session_here(place: Place) -> dict[str, Any]:
    """The session of the directory."""
    [session] = documents(place.moorage("session", "get", "--json").stdout)
    return session


def running(place: Place, prompt: str) -> Program:
    """A turn whose agent speaks already."""
    program = place.start("run", prompt, "--json")
    while "agentMessage" not in program.document().get("record", {}).get("body", {}):
        pass
    return program


def test_stop_tells_how_the_turn_ended_and_leaves_the_agent_warm(here: Place) -> None:
    turn = running(here, ENDLESS)
    stopped = here.moorage("stop")
    assert (stopped.returncode, stopped.stderr) == (0, "")
    assert "STOPPED after " in stopped.stdout
    assert "s: the agent confirmed and stays warm\n" in stopped.stdout
    code, _, errors = turn.ended()
    assert (code, errors) == (3, "")
    again = documents(here.moorage("run", "say on", "--json").stdout)
    assert again[-1]["ended"]["metadata"]["resumeKind"] == "RESUME_KIND_WARM"


def test_stop_of_nothing_is_refused_and_of_an_ended_turn_does_nothing(here: Place) -> None:
    assert here.moorage("stop").stderr.startswith("error: no session belongs to ")
    ended = documents(here.moorage("run", "say hello", "--json").stdout)[-1]["ended"]
    nothing = here.moorage("stop")
    assert nothing.returncode == 1
    assert nothing.stderr.startswith("error: no turn is in progress in ")
    [command] = documents(here.moorage("stop", "--turn", ended["turnId"], "--json").stdout)
    assert command["state"] == "COMMAND_STATE_OBSOLETE"
    assert command["outcome"] == "COMMAND_OUTCOME_NOT_RUNNING"


def test_stop_of_a_turn_that_does_not_exist_fails_and_says_what_it_did(here: Place) -> None:
    assert here.moorage("run", "say hello").returncode == 0
    session = session_here(here)["sessionId"]
    typo = here.moorage("stop", "--turn", "TYPO")
    assert (typo.returncode, typo.stdout) == (1, "")
    error, hint = typo.stderr.splitlines()
    assert error == f"error: session {session} has no turn TYPO"
    assert hint.startswith("for 10 minutes none with this id can be started; `moorage turn list ")


def test_a_session_that_cannot_be_closed_keeps_no_other_open(here: Place) -> None:
    names = [f"{here.work.name[:40]}-{letter}" for letter in "ac"]
    for name in names:
        assert here.moorage("session", "create", name, "--directory", ".").returncode == 0
    closed = here.moorage("session", "close", names[0], "a b", "nope", names[1])
    assert closed.stdout.splitlines() == [f"{name} is closed" for name in names]
    bad, missing = closed.stderr.splitlines()
    assert bad.startswith("error: session_id: ")
    assert missing.startswith("error: session nope does not exist")
    assert closed.returncode == 2


@pytest.mark.parametrize(("word", "ran"), [("approve", True), ("deny", False)])
def test_a_question_without_a_terminal_ends_run_and_can_be_answered(
    here: Place, word: str, ran: bool
) -> None:
    asked = here.moorage("run", "ask to run touch ran.txt")
    assert asked.returncode == 5
    assert asked.stdout.splitlines()[-1] == "? touch ran.txt"
    assert "`moorage answer approve " in asked.stderr
    [session] = documents(here.moorage("session", "get", "--json").stdout)
    assert session["turn"]["state"] == "TURN_STATE_AWAITING_INPUT"
    shown = here.moorage("session", "get").stdout
    rows = [line.split(maxsplit=1) for line in shown.splitlines()]
    assert ["waits", "for your answer"] in rows
    assert ["asks", "touch ran.txt"] in rows
    assert f"`moorage answer approve {session['sessionId']}` or `moorage answer deny " in shown
    busy = here.moorage("run", "say no")
    assert busy.returncode == 1
    assert "`moorage answer` answers it; " in busy.stderr
    refused = here.moorage("answer", "perhaps")
    assert refused.returncode == 2
    assert refused.stderr.startswith("error: perhaps is not offered\noffered: ")
    answered = here.moorage("answer", word)
    assert (answered.returncode, answered.stderr) == (0, "")
    followed = here.moorage("run", "say after")
    while followed.returncode == 1 and "TURN_IN_PROGRESS" in followed.stderr:
        followed = here.moorage("run", "say after")
    assert followed.returncode == 0
    assert (here.work / "ran.txt").exists() is ran
    late = here.moorage("answer", word, "--json")
    assert error_of(late.stderr)["message"] == "no question waits"


@contextmanager
def terminal(place: Place, *arguments: str) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """A command on a terminal of its own."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [*MOORAGE, *arguments],
        cwd=place.work,
        env=place.environment(),
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
    )
    os.close(theirs)
    try:
        yield process, ours
    finally:
        process.kill()
        process.wait()
        os.close(ours)


def read_until(descriptor: int, text: str) -> str:
    """What the terminal shows, until it shows the text."""
    shown = ""
    while text not in shown:
        shown += os.read(descriptor, 4096).decode(errors="replace")
    return shown


def test_a_question_is_asked_on_the_terminal(here: Place) -> None:
    with terminal(here, "run", "ask to run touch asked.txt") as (process, screen):
        read_until(screen, "answer (number, y or n): ")
        os.write(screen, b"y\n")
        read_until(screen, "COMPLETED")
        assert process.wait() == 0
    assert (here.work / "asked.txt").exists()


def test_ctrl_d_at_a_question_is_as_without_a_terminal(here: Place) -> None:
    with terminal(here, "run", "ask to run touch asked.txt") as (process, screen):
        read_until(screen, "answer (number, y or n): ")
        os.write(screen, b"\x04")
        told = read_until(screen, "shows how it goes on")
        assert process.wait() == 5
    session = session_here(here)
    assert f"`moorage answer approve {session['sessionId']}` or `moorage answer deny " in told
    assert session["turn"]["state"] == "TURN_STATE_AWAITING_INPUT"
    here.moorage("session", "close")


@pytest.mark.parametrize(("key", "code"), [(b"y\n", 3), (b"n\n", 130)])
def test_ctrl_c_on_a_terminal_asks_whether_to_stop(here: Place, key: bytes, code: int) -> None:
    with terminal(here, "run", ENDLESS) as (process, screen):
        read_until(screen, "7\r\n")
        process.send_signal(signal.SIGINT)
        read_until(screen, "stop the turn?")
        os.write(screen, key)
        read_until(screen, "STOPPED after" if code == 3 else "the turn goes on")
        assert process.wait() == code
    [session] = documents(here.moorage("session", "get", "--json").stdout)
    assert ("turn" in session) is (code == 130)
    here.moorage("session", "close")


def test_close_ends_what_runs_and_the_next_run_makes_a_new_session(here: Place) -> None:
    turn = running(here, ENDLESS)
    before = session_here(here)["sessionId"]
    closed = here.moorage("session", "close")
    assert (closed.returncode, closed.stdout) == (0, f"{before} is closed\n")
    assert turn.ended()[0] == 3
    assert here.moorage("run", "say anew").returncode == 0
    assert session_here(here)["sessionId"] != before
    again = here.moorage("session", "close", before, "--json")
    assert documents(again.stdout)[0]["state"] == "SESSION_STATE_CLOSED"


def test_operators_see_who_drives_what_and_where(here: Place) -> None:
    assert here.moorage("run", "say hello").returncode == 0
    session = session_here(here)["sessionId"]
    leases = documents(here.moorage("lease", "list", "--json").stdout)
    names = [lease["resource"] for lease in leases]
    assert f"projects/default/sessions/{session}" in names
    assert {"runners/local", "instances/local"} <= set(names)
    shown = here.moorage("lease", "get", session)
    assert f"projects/default/sessions/{session}" in shown.stdout
    missing = here.moorage("lease", "get", "runners/nobody")
    assert missing.returncode == 1
    assert "LEASE_NOT_FOUND" in missing.stderr
    workspaces = documents(here.moorage("workspace", "list", "--json").stdout)
    assert session in [workspace["sessionId"] for workspace in workspaces]


def test_operators_commands_need_an_address_where_nothing_runs(place: Place) -> None:
    refused = place.moorage("lease", "list")
    assert refused.returncode == 6
    assert (
        refused.stderr.splitlines()[0] == "error: no `moorage up` runs here, so where is the owner service?"
    )


def test_the_doctor_looks_at_the_machine_and_the_services(here: Place, place: Place) -> None:
    alone = documents(place.moorage("doctor", "--json").stdout)
    assert [check["check"] for check in alone] == ["python", "disk", "postgres", "services", "docker"]
    assert all(check["ok"] for check in alone)
    together = here.moorage("doctor")
    assert together.returncode == 0
    assert "demo, " in together.stdout
    assert "\n- docker     no image is allowed: `up --docker-image`, " in together.stdout
