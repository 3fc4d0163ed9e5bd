"""Programs that end with the process that started them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from services.cli.child import tied
from tests.cli.trees import runs
from tests.conditions import eventually

PARENT = """
import subprocess, sys, signal
from services.cli.child import tied
program = "import os, signal; signal.signal(signal.{}, lambda *_: (print('told', flush=True), os._exit(0)))"
program += "; print(os.getpid(), flush=True); signal.pause()"
subprocess.Popen(tied([sys.executable, "-c", program], end=signal.{})).wait()
"""


@pytest.fixture(params=["SIGTERM", "SIGINT"])
def parent(request: pytest.FixtureRequest) -> Iterator[subprocess.Popen[str]]:
    """A process whose child wants to be told by this signal."""
    command = [sys.executable, "-c", PARENT.format(request.param, request.param)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        yield process


async def test_the_child_is_told_when_its_parent_is_killed(parent: subprocess.Popen[str]) -> None:
    assert parent.stdout
    child = int(parent.stdout.readline())
    parent.kill()
    assert parent.stdout.readline() == "told\n"
    await eventually(lambda: not runs(child), what="the child ends")


def test_the_program_is_the_child_itself(capfd: pytest.CaptureFixture[str]) -> None:
    with subprocess.Popen(tied([sys.executable, "-c", "import os; print(os.getpid())"])) as process:
        process.wait()
    assert int(capfd.readouterr().out) == process.pid


def test_a_child_whose_parent_is_gone_already_does_not_begin() -> None:
    command = tied(["/bin/echo", "began"])
    command[command.index(str(os.getpid()))] = "1" if os.getppid() != 1 else "2"
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout, ended.stderr) == (1, "", "the parent is gone\n")


def test_a_given_environment_replaces_the_inherited_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET", "1")
    variables = {"LC_ALL": "C", "EMPTY": "", "WITH": "a=b --"}
    shown = subprocess.check_output(tied(["/usr/bin/env", "-0"], environment=variables), text=True)
    assert dict(line.split("=", 1) for line in shown.split("\0") if line) == variables
    assert "SECRET=1" in subprocess.check_output(tied(["/usr/bin/env"]), text=True)


def test_a_program_that_is_not_there_is_told() -> None:
    ended = subprocess.run(tied(["/nowhere"]), capture_output=True, text=True, check=False)
    assert ended.returncode == 1
    assert "No such file or directory" in ended.stderr


@pytest.mark.parametrize("end", [signal.SIGKILL])
def test_any_signal_can_be_the_end(end: signal.Signals) -> None:
    assert subprocess.check_output(tied(["/bin/echo", "began"], end=end), text=True) == "began\n"
