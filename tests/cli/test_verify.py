"""`moorage verify agent` and `moorage doctor --agent`: verdicts on agents that are known for something."""

from __future__ import annotations

import asyncio
import json
import os
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.agents.installed import COMMANDS, OPENCODE, needs, surroundings
from tests.agents.model import serving
from tests.cli.programs import Place
from tests.runner.profiles import ROGUES

pytestmark = pytest.mark.timeout(120)
CHECKS = [
    "starts",
    "introduces itself",
    "opens a session",
    "answers a prompt",
    "is silent afterwards",
    "answers a second prompt",
    "keeps its output clean",
    "ends with its input",
    "leaves nothing behind",
    "honours a cancel",
    "goes on after a cancel",
    "honours a cancel at once",
    "refuses unknown requests",
    "refuses unknown sessions",
    "loads its session",
    "honours a cancel after a load",
]


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    """A directory to work in."""
    place = Place.below(tmp_path)
    yield place
    place.clean()


def verified(place: Place, *arguments: str, **environment: str) -> tuple[int, dict[str, dict[str, Any]]]:
    """The exit code, and the findings by their checks."""
    ended = place.moorage("verify", "agent", *arguments, "--json", **environment)
    assert not ended.stderr, ended.stderr
    found = [json.loads(line) for line in ended.stdout.splitlines()]
    assert [finding["check"] for finding in found] == CHECKS
    return ended.returncode, {finding["check"]: finding for finding in found}


def rogue(habit: str) -> tuple[str, ...]:
    """The flags for one of the agents with bad habits."""
    command = shlex.join([sys.executable, "-I", "-S", str(ROGUES), habit])
    return ("--command", command, "--timeout", "1")


def test_the_demo_agent_does_all_of_it_right(place: Place) -> None:
    words = ("--prompt", "say ready", "--long-prompt", "count to 1000 every 0.05")
    code, found = verified(place, "--profile", "demo", *words)
    assert code == 0
    assert {finding["verdict"] for finding in found.values()} == {"right"}, found


@needs("opencode", OPENCODE)
async def test_opencode_does_all_of_it_right_but_for_cancels_that_come_at_once(
    place: Place, tmp_path: Path
) -> None:
    environment = {
        **surroundings(tmp_path / "home", OPENCODE),
        "OPENCODE_DISABLE_MODELS_FETCH": "1",
        "OPENCODE_DISABLE_AUTOUPDATE": "1",
    }
    async with serving() as model:
        provider = {
            "npm": "@ai-sdk/openai-compatible",
            "options": {"baseURL": model.base_url, "apiKey": "none"},
            "models": {"one": {"name": "One"}},
        }
        configuration = {"model": "test/one", "provider": {"test": provider}}
        (place.work / "opencode.json").write_text(json.dumps(configuration), encoding="utf-8")
        words = ("--prompt", "say ready", "--long-prompt", "never end")
        arguments = ("--command", "opencode acp", "--timeout", "15", *words)
        code, found = await asyncio.to_thread(lambda: verified(place, *arguments, **environment))
    # It loses some: whether it does depends on the moment, and so does the exit code.
    lost = found.pop("honours a cancel at once")
    assert (lost["verdict"] == "wrong") == bool(code)
    assert {finding["verdict"] for finding in found.values()} == {"right"}, found


@pytest.mark.parametrize(
    ("habit", "wrong", "right"),
    [
        (
            "ignores_cancel",
            {"answers a prompt", "honours a cancel", "honours a cancel at once"},
            {"starts", "opens a session", "ends with its input", "keeps its output clean"},
        ),
        (
            "noise",
            {"answers a second prompt", "keeps its output clean"},
            {"answers a prompt", "is silent afterwards", "ends with its input"},
        ),
        (
            "chatters",
            {"is silent afterwards"},
            {"answers a prompt", "answers a second prompt", "keeps its output clean"},
        ),
        ("leaves_a_child", {"leaves nothing behind"}, {"answers a prompt", "answers a second prompt"}),
        ("exits_at_once", {"introduces itself"}, {"starts"}),
    ],
)
def test_bad_habits_are_found_and_nothing_else_is_blamed(
    place: Place, habit: str, wrong: set[str], right: set[str]
) -> None:
    code, found = verified(place, *rogue(habit))
    verdicts = {name: finding["verdict"] for name, finding in found.items()}
    assert code == 1
    assert {name for name in wrong if verdicts[name] != "wrong"} == set(), found
    assert {name for name in right if verdicts[name] != "right"} == set(), found


def test_a_login_that_is_wanted_is_no_fault(place: Place) -> None:
    code, found = verified(place, *rogue("wants_login"))
    assert code == 0
    assert found["opens a session"]["text"] == "it wants a login first (In a browser)"
    assert found["answers a prompt"]["verdict"] == "not tried"


def test_for_people_it_is_a_table(place: Place) -> None:
    ended = place.moorage("verify", "agent", *rogue("exits_at_once"))
    assert ended.returncode == 1
    assert ended.stdout.splitlines()[:2] == [
        f"✓ starts                         {sys.executable}",
        "✗ introduces itself              the agent's output ended",
    ]


def test_what_cannot_be_checked_is_a_matter_of_usage(place: Place) -> None:
    assert place.moorage("verify", "agent").returncode == 2
    unknown = place.moorage("verify", "agent", "--profile", "nobody")
    assert unknown.returncode == 2
    assert "no such profile" in unknown.stderr
    missing = place.moorage("verify", "agent", "--command", "no-such-program", "--json")
    assert missing.returncode == 1
    assert json.loads(missing.stdout.splitlines()[0])["verdict"] == "wrong"


def test_the_doctor_says_in_one_line_what_an_agent_lacks(place: Place, tmp_path: Path) -> None:
    well = place.moorage("doctor", "--agent", "demo")
    assert (well.returncode, well.stdout) == (0, "✓ demo       moorage-demo 1 opens sessions\n")
    path = os.pathsep.join((str(Path(sys.executable).parent), "/usr/bin", "/bin"))
    ill = place.moorage("doctor", "--agent", "goose", PATH=path)
    assert ill.returncode == 1
    assert ill.stdout.startswith("✗ goose      goose is not installed: ")
    assert len(ill.stdout.splitlines()) == 1


@needs("codex-acp")
def test_the_doctor_says_how_to_log_in(place: Place, tmp_path: Path) -> None:
    ended = place.moorage("doctor", "--agent", "codex", **surroundings(tmp_path / "home", COMMANDS))
    assert ended.returncode == 1
    assert "wants a login: set OPENAI_API_KEY" in ended.stdout
