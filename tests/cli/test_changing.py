"""A new session beside another, a session changed, and orders for many that are asked about first."""

from __future__ import annotations

from typing import Any

import pytest

from tests.cli.programs import Place
from tests.cli.screens import on_terminal
from tests.cli.test_orders import documents, session_here

pytestmark = pytest.mark.timeout(120)


def test_a_new_session_can_be_had_beside_the_one_of_the_directory(here: Place) -> None:
    assert here.moorage("run", "remember old").returncode == 0
    before = session_here(here)["sessionId"]
    first = here.moorage("run", "--new", "recall")
    assert first.returncode == 0
    assert "old" not in first.stdout.splitlines()[1:]
    new = session_here(here)["sessionId"]
    assert new != before
    assert here.moorage("run", "say on").returncode == 0
    assert session_here(here)["sessionId"] == new
    assert "old" in here.moorage("run", "--session", before, "recall").stdout
    assert session_here(here)["sessionId"] == new


def changed(place: Place, *arguments: str) -> dict[str, Any]:
    """The session after an update."""
    told = place.moorage("session", "update", *arguments, "--json")
    assert told.returncode == 0, told.stderr
    [session] = documents(told.stdout)
    return session


def test_what_of_a_session_can_be_changed_is_and_the_rest_stays(here: Place) -> None:
    name = here.work.name[:60]
    here.moorage("session", "create", name, "--directory", ".", "--label", "team=harbour", "--label", "old=1")
    session = changed(here, name, "--label", "stage=two", "--remove-label", "old", "--approval", "deny")
    assert session["labels"] == {"team": "harbour", "stage": "two"}
    assert session["approvalPolicy"] == "APPROVAL_POLICY_DENY"
    limited = changed(here, name, "--max-duration", "90", "--max-tool-calls", "3")
    assert limited["limits"]["maxDuration"] == "90s"
    assert limited["limits"]["maxToolCalls"] == 3
    again = changed(here, name, "--max-silence", "2.5")
    assert again["limits"] == {**limited["limits"], "maxSilence": "2.500s"}
    assert again["labels"] == session["labels"]
    shown = here.moorage("session", "update", name, "--approval", "allow").stdout
    assert ["approval", "allow"] in [line.split() for line in shown.splitlines()]
    assert here.moorage("session", "update", name).returncode == 2


def test_closing_everything_is_asked_about_on_a_terminal(here: Place) -> None:
    here.moorage("run", "say open")
    with on_terminal(here, "session", "close", "--all") as terminal:
        assert "of project default?" in "".join(terminal.until("[y: do it, n: leave it]"))
        terminal.type(b"n\n")
        assert terminal.ended()[-1] == "error: nothing was done"
        assert terminal.process.wait() == 2
    assert session_here(here)["state"] == "SESSION_STATE_OPEN"


def test_a_takeover_is_asked_about_on_a_terminal(here: Place) -> None:
    here.moorage("run", "say parked")
    session = session_here(here)
    with on_terminal(here, "session", "takeover") as terminal:
        lines = "".join(terminal.until("[y: do it, n: leave it]"))
        assert f"take {session['sessionId']} from {session['lease']['holder']}?" in lines
        terminal.type(b"y\n")
        assert "is good no more" in "".join(terminal.ended())
        assert terminal.process.wait() == 0


def test_draining_a_runner_is_asked_about_on_a_terminal(here: Place) -> None:
    with on_terminal(here, "runner", "drain", "local") as terminal:
        lines = "".join(terminal.until("[y: do it, n: leave it]"))
        assert "take no more turns, for good?" in lines
        terminal.type(b"\n")
        terminal.ended()
        assert terminal.process.wait() == 2
    assert here.moorage("run", "say on").returncode == 0
