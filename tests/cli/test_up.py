"""`moorage up`: what it starts, announces, refuses, and leaves behind."""

from __future__ import annotations

import json
import os
import signal
import socket
import time
from pathlib import Path

import pytest

from tests.cli.programs import Place, error_of, up
from tests.cli.trees import descendants, runs
from tests.conditions import eventually

pytestmark = pytest.mark.timeout(120)


async def gone(pids: dict[int, str]) -> None:
    """Wait until none of these runs any more."""
    await eventually(lambda: not any(map(runs, pids)), within=30, what=f"all of {pids} are gone")


async def test_it_announces_where_it_serves_and_sigterm_leaves_no_process(
    place: Place, database_url: str
) -> None:
    with up(place, MOORAGE_DATABASE_URL=database_url) as (program, announced):
        assert announced["root"] == str(place.work)
        assert announced["pid"] == program.process.pid
        addresses = {announced[name] for name in ("owner", "session", "journal", "workspace", "runner")}
        assert len(addresses) == 5
        assert all(address.startswith("127.0.0.1:") for address in addresses)
        turn = place.start("run", "run sleep 60", "--json")
        while "toolCall" not in turn.document().get("record", {}).get("body", {}):
            pass
        turn.signal(signal.SIGTERM)
        assert turn.ended()[0] == 143
        family = descendants(program.process.pid)
        assert any("services.runner" in command for command in family.values())
        assert any("sleep 60" in command for command in family.values())
        program.signal(signal.SIGTERM)
        assert "Ctrl-C again does not wait" in program.told()
        program.signal(signal.SIGTERM)
        assert program.ended() == (143, "", "")
        await gone(family)
        assert not (place.state / "up.json").exists()


async def test_a_killed_one_leaves_no_process_and_the_next_one_goes_on(place: Place) -> None:
    # The next one waits until the leases of the killed one have ended.
    with up(place, MOORAGE_LEASE_TTL="2") as (program, _):
        assert place.moorage("run", "say first").returncode == 0
        family = descendants(program.process.pid)
        program.kill()
        await gone(family)
        assert (place.state / "up.json").exists()
        assert "no `moorage up` runs here" in place.moorage("session", "list").stderr
    with up(place):
        found = place.moorage("watch", "--no-follow")
        assert "say first" in found.stdout


async def test_a_service_that_ends_during_a_turn_ends_everything_soon_and_says_so_at_once(
    place: Place, database_url: str
) -> None:
    with up(place, MOORAGE_DATABASE_URL=database_url) as (program, announced):
        turn = place.start("run", "run sleep 600", "--approval", "allow", "--json")
        while "toolCall" not in turn.document().get("record", {}).get("body", {}):
            pass
        family = descendants(program.process.pid)
        [session] = [pid for pid, command in family.items() if "services.session" in command]
        os.kill(session, signal.SIGKILL)
        since = time.monotonic()
        assert json.loads(program.told()) == {
            "hint": "the service session was ended by SIGKILL (killed); ending the others"
        }
        assert time.monotonic() - since < 2.0
        code, _, errors = program.ended()
        assert time.monotonic() - since < 15.0
        message = error_of(errors)["message"]
        assert code == 1
        assert message.startswith("the service session was ended by SIGKILL (killed): ")
        assert announced["logs"] in message
        assert len(message.splitlines()) <= 6
        turn.kill()
        await gone(family)


async def test_a_database_that_ends_ends_everything(place: Place) -> None:
    with up(place) as (program, _):
        family = descendants(program.process.pid)
        postgres = min(pid for pid, command in family.items() if "bin/postgres -D" in command)
        os.kill(postgres, signal.SIGKILL)
        code, _, errors = program.ended()
        assert code == 1
        assert error_of(errors)["message"].startswith("PostgreSQL ended: its log is ")
        await gone(family)


def test_people_are_told_what_takes_a_while_what_keeps_containers_away_and_where_the_data_lies(
    place: Place,
) -> None:
    nowhere = f"unix://{place.work}/none"
    program = place.start(
        *("up", "--listen", "127.0.0.1:0", "--docker-image", "one"), MOORAGE_WORKSPACE_DOCKER_HOST=nowhere
    )
    assert program.line() == "making the database…\n"
    while not (line := program.line()).startswith("  docker "):
        pass
    told = line + program.line() + program.line()
    assert told.startswith("  docker     no containers of one can be made: ")
    assert f"no engine at {nowhere}:" in " ".join(told.split())
    while not (line := program.line()).startswith("The database is in "):
        pass
    assert (
        Path(line.removeprefix("The database is in ").strip().rstrip(".")) / "data" / "PG_VERSION"
    ).exists()
    program.signal(signal.SIGTERM)
    assert program.ended()[0] == 143


def test_an_address_in_use_is_refused(place: Place) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        refused = place.moorage("up", "--listen", address)
    assert (refused.returncode, refused.stderr) == (
        1,
        f"error: cannot listen on {address}: Address already in use\n",
    )
    assert not place.state_home.exists()


@pytest.mark.parametrize("address", ["0.0.0.0:7801", "nowhere", "127.0.0.1", "127.0.0.1:99999"])
def test_an_address_that_cannot_be_is_a_usage_error(place: Place, address: str) -> None:
    refused = place.moorage("up", "--listen", address)
    assert refused.returncode == 2
    assert "--listen" in refused.stderr
    assert not place.state_home.exists()


def test_a_database_out_of_reach_is_told_in_one_line_without_its_password(place: Place) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        url = f"postgresql://someone:secret@127.0.0.1:{closed.getsockname()[1]}/moorage"
        refused = place.moorage("up", MOORAGE_DATABASE_URL=url)
    assert refused.returncode == 1
    [line] = refused.stderr.splitlines()
    assert line.startswith("error: database is unavailable: ")
    assert "secret" not in line


def test_a_database_of_ones_own_is_migrated_and_used(place: Place, empty_database_url: str) -> None:
    with up(place, MOORAGE_DATABASE_URL=empty_database_url) as (program, _):
        assert not any("bin/postgres" in command for command in descendants(program.process.pid).values())
        assert not (place.state / "postgres").exists()
        assert place.moorage("run", "say hello").returncode == 0


def test_a_service_that_refuses_to_start_is_quoted(place: Place, empty_database_url: str) -> None:
    bad = {"MOORAGE_DATABASE_URL": empty_database_url, "MOORAGE_RUNNER_CAPACITY": "none"}
    refused = place.moorage("up", "--listen", "127.0.0.1:0", **bad)
    assert refused.returncode == 1
    assert "error: the service runner ended with exit code 2" in refused.stderr
    assert "MOORAGE_RUNNER_CAPACITY" in refused.stderr
    assert "Traceback" not in refused.stderr


def test_a_place_that_cannot_be_written_is_told(place: Place) -> None:
    place.state_home.write_text("not a directory")
    refused = place.moorage("up")
    assert refused.returncode == 1
    first, second = refused.stderr.splitlines()
    assert first.startswith(f"error: cannot keep data in {place.state_home}")
    assert "XDG_STATE_HOME" in second


def test_interrupted_while_it_starts_it_leaves_nothing(place: Place, empty_database_url: str) -> None:
    starting = place.start("up", "--listen", "127.0.0.1:0", MOORAGE_DATABASE_URL=empty_database_url)
    log = place.state / "logs" / "owner.log"
    while not log.exists():
        assert starting.process.poll() is None
    family = descendants(starting.process.pid)
    starting.signal(signal.SIGINT)
    code, _, errors = starting.ended()
    assert (code, errors) == (130, "")
    assert not any(map(runs, family))
