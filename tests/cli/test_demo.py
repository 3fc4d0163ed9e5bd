"""`moorage demo`, whole: what it tells when all is well, and that it fails when something is not."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest

from tests.cli.programs import Place, error_of
from tests.cli.trees import descendants, runs
from tests.conditions import eventually

pytestmark = pytest.mark.timeout(180)

STEPS = [
    "services",
    "session",
    "turn",
    "tool call",
    "next turn",
    "approval",
    "stop",
    "warm",
    "transcript",
    "error",
    "close",
    "end",
]


@pytest.fixture
def temporary(tmp_path: Path) -> Path:
    """Where the demo keeps its data."""
    directory = tmp_path / "temporary"
    directory.mkdir()
    return directory


def test_it_tells_every_step_and_leaves_nothing(place: Place, temporary: Path) -> None:
    shown = place.moorage("demo", TMPDIR=str(temporary))
    assert (shown.returncode, shown.stderr) == (0, "")
    assert [line[2:13].strip() for line in shown.stdout.splitlines()] == STEPS
    assert all(line.startswith("✓ ") for line in shown.stdout.splitlines())
    assert "'Hello from a session that outlives its processes'" in shown.stdout
    assert "NOT_FOUND / SESSION_NOT_FOUND" in shown.stdout
    assert list(temporary.iterdir()) == []
    assert not place.state_home.exists()


def test_it_leaves_nothing_when_nobody_reads_on(place: Place, temporary: Path) -> None:
    program = place.start("demo", TMPDIR=str(temporary))
    assert program.line().startswith("✓ services")
    family = descendants(program.process.pid)
    assert program.abandoned()[0] == 1
    assert list(temporary.iterdir()) == []
    assert not any(map(runs, family))


def test_it_runs_on_a_deployment_whose_directories_it_cannot_see(moored: Place) -> None:
    address = json.loads((moored.state / "up.json").read_text())["session"]
    shown = moored.moorage("demo", "--on", address)
    assert (shown.returncode, shown.stderr) == (0, "")
    assert [line[2:13].strip() for line in shown.stdout.splitlines()] == STEPS[1:-1]
    assert "(local)" in shown.stdout.splitlines()[0]


def test_a_turn_that_fails_fails_it(place: Place, temporary: Path) -> None:
    environment = {"TMPDIR": str(temporary), "MOORAGE_FAILPOINTS": "runner.prompt.before_send=error"}
    failed = place.moorage("demo", "--json", **environment)
    assert failed.returncode == 1
    assert [json.loads(line)["step"] for line in failed.stdout.splitlines()] == STEPS[:2]
    assert error_of(failed.stderr)["message"].startswith("not so: the turn completed; seen: ")
    assert list(temporary.glob("*/state/logs/runner.log"))


def test_a_service_that_dies_fails_it_at_once(place: Place, temporary: Path) -> None:
    environment = {"TMPDIR": str(temporary), "MOORAGE_FAILPOINTS": "runner.prompt.before_send=kill"}
    failed = place.moorage("demo", **environment)
    assert failed.returncode == 1
    error, *_, hint = failed.stderr.splitlines()
    assert error.startswith("error: the service runner was ended by SIGKILL (killed): ")
    assert hint.startswith(f"the services' logs are in {temporary}")


async def test_ctrl_c_ends_it_and_leaves_nothing(place: Place, temporary: Path) -> None:
    demo = place.start("demo", "--json", TMPDIR=str(temporary))
    assert demo.document()["step"] == "services"
    family = descendants(demo.process.pid)
    demo.signal(signal.SIGINT)
    code, _, errors = demo.ended()
    assert (code, errors) == (130, "")
    await eventually(lambda: not any(map(runs, family)), within=30)
    assert list(temporary.iterdir()) == []
