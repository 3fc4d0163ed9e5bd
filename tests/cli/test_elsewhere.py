"""Commands where no `up` runs: what they use, and what they refuse to guess."""

from __future__ import annotations

import json

import pytest

from services.cli.connection import NotReachable, connect
from tests.cli.programs import Place, error_of

pytestmark = pytest.mark.timeout(120)

NOBODY = "127.0.0.1:1"


def test_the_address_that_is_guessed_is_told_once(place: Place) -> None:
    told = place.moorage("session", "list").stderr.splitlines()
    assert told[0] == "no `moorage up` runs here; using 127.0.0.1:7801"
    assert "using" not in "".join(told[1:])
    first = place.moorage("session", "list", "--json").stderr.splitlines()[0]
    assert json.loads(first) == {"hint": "no `moorage up` runs here; using 127.0.0.1:7801"}
    named = place.moorage("session", "list", MOORAGE_ADDRESS=NOBODY)
    assert "no `moorage up` runs here" not in named.stderr


async def test_who_found_nobody_at_the_usual_address_is_told_how_to_start_somebody() -> None:
    with pytest.raises(NotReachable) as nobody:
        async with connect(NOBODY, "default"):
            pass
    assert nobody.value.hint.startswith("`moorage up` starts one")


@pytest.mark.parametrize("command", [["session", "close", "--all"], ["session", "takeover", "some"]])
def test_what_cannot_be_taken_back_wants_an_address(place: Place, command: list[str]) -> None:
    refused = place.moorage(*command, "--json")
    assert refused.returncode == 2
    assert "--address" in error_of(refused.stderr)["hint"]
    named = place.moorage("--address", NOBODY, *command, "--json")
    assert named.returncode == 6
    message = error_of(named.stderr)["message"]
    assert NOBODY in message


@pytest.mark.parametrize(
    "command",
    [
        ["lease", "list"],
        ["lease", "get", "some"],
        ["lease", "watch"],
        ["workspace", "list"],
        ["runner", "drain", "some"],
    ],
)
def test_no_service_has_one_code_for_operators_too(place: Place, command: list[str]) -> None:
    unknown = place.moorage(*command)
    assert unknown.returncode == 6
    assert "no `moorage up` runs here" in unknown.stderr
    away = place.moorage(*command, MOORAGE_OWNER_ADDRESS=NOBODY, MOORAGE_WORKSPACE_ADDRESS=NOBODY)
    assert away.returncode == 6
    assert away.stderr == f"error: nothing answers at {NOBODY} (UNAVAILABLE)\n"
