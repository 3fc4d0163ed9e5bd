"""`session delete` against a running `up`: asked about, done, and a new session afterwards."""

from __future__ import annotations

import os

import pytest

from tests.cli.programs import Place, error_of
from tests.cli.test_orders import documents, read_until, running, session_here, terminal

pytestmark = pytest.mark.timeout(120)


def test_it_wants_a_yes_and_ends_what_runs_and_the_next_run_makes_a_new_session(here: Place) -> None:
    turn = running(here, "count to 100000 every 0.05")
    names = [session_here(here)["sessionId"]]
    refused = here.moorage("session", "delete")
    assert refused.returncode == 2
    assert refused.stderr.startswith("error: deleting a session cannot be undone\n--yes ")
    deleted = here.moorage("session", "delete", "--yes")
    assert (deleted.returncode, deleted.stdout) == (0, f"{names[0]} is deleted\n")
    assert turn.ended()[0] in (1, 3)
    assert here.moorage("session", "get", names[0]).returncode == 1
    # The first of a directory, and the one after it, and so on: each is another one.
    for _ in range(2):
        assert here.moorage("run", "say anew").returncode == 0
        names.append(session_here(here)["sessionId"])
        told = here.moorage("session", "delete", names[-1], "--yes", "--json")
        assert documents(told.stdout) == [{"sessionId": names[-1], "deleted": True}]
    assert len(set(names)) == 3
    again = here.moorage("session", "delete", names[-1], "--yes", "--json")
    assert again.returncode == 1
    assert error_of(again.stderr)["reason"] == "SESSION_NOT_FOUND"
    taken = here.moorage("session", "create", names[-1], "--directory", ".")
    assert "was deleted" in taken.stderr


@pytest.mark.parametrize(("key", "code"), [(b"y\n", 0), (b"n\n", 2)])
def test_a_terminal_is_asked(here: Place, key: bytes, code: int) -> None:
    assert here.moorage("run", "say hello").returncode == 0
    name = session_here(here)["sessionId"]
    with terminal(here, "session", "delete") as (process, screen):
        asked = read_until(screen, "[y/N] ")
        assert f"delete {name} with its " in asked
        os.write(screen, key)
        read_until(screen, "is deleted" if code == 0 else "stays as it is")
        assert process.wait() == code
    assert here.moorage("session", "get", name).returncode == (1 if code == 0 else 0)
