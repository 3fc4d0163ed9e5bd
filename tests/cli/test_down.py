"""`moorage down`, and `moorage up` below a directory that is served already."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from services.cli.commands import down
from services.cli.state import Running
from tests.cli.programs import Place, error_of, up

pytestmark = pytest.mark.timeout(120)


def test_the_services_around_a_directory_are_known_there_and_can_be_ended_there(
    place: Place, database_url: str
) -> None:
    sub = Place(place.work / "sub", place.state_home)
    sub.work.mkdir()
    with up(place, MOORAGE_DATABASE_URL=database_url) as (program, _):
        error, hint = sub.moorage("up").stderr.splitlines()
        assert error.startswith(
            f"error: the `moorage up` of {place.work} serves this directory too (process "
        )
        assert "`moorage up --separate`" in hint
        apart = sub.moorage("up", "--separate", "--database-url", "postgresql://nobody@127.0.0.1:9/none")
        assert apart.returncode == 1
        assert "serves this directory" not in apart.stderr
        ended = sub.moorage("down")
        assert (ended.returncode, ended.stdout) == (0, f"the `moorage up` of {place.work} has ended\n")
        assert program.ended()[0] == 143
    nothing = place.moorage("down", "--json")
    assert nothing.returncode == 1
    assert error_of(nothing.stderr)["message"] == f"no `moorage up` serves {place.work}"


def test_turns_in_progress_are_waited_for_unless_it_is_to_be_now(place: Place, database_url: str) -> None:
    with up(place, MOORAGE_DATABASE_URL=database_url) as (program, announced):
        turn = place.start("run", "say begun\nsleep 600", "--json")
        while "agentMessage" not in turn.document().get("record", {}).get("body", {}):
            pass
        waits = place.moorage("down", "--timeout", "1")
        assert waits.returncode == 1
        assert f"process {announced['pid']} is still ending after 1 s" in waits.stderr
        assert program.process.poll() is None
        turn.kill()


def test_now_does_not_wait_for_a_turn(place: Place, database_url: str) -> None:
    with up(place, MOORAGE_DATABASE_URL=database_url) as (program, announced):
        turn = place.start("run", "say begun\nsleep 600", "--json")
        while "agentMessage" not in turn.document().get("record", {}).get("body", {}):
            pass
        # A turn is given half a minute otherwise.
        ended = place.moorage("down", "--now", "--timeout", "25", "--json")
        assert (ended.returncode, ended.stderr) == (0, "")
        assert f'"pid": {announced["pid"]}' in ended.stdout
        assert program.ended()[0] == 143
        turn.kill()


@pytest.mark.parametrize("now", [False, True])
async def test_one_that_has_ended_meanwhile_has_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, now: bool
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    await down._end(Running(process.pid, str(tmp_path), *("" for _ in range(6))), 1.0, now=now)
