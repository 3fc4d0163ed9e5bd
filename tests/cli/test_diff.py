"""`moorage diff`: what a turn changed, without a trace in the repository."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from services.cli import baselines
from tests.cli.programs import Place

pytestmark = [
    pytest.mark.timeout(120),
    pytest.mark.skipif(shutil.which("git") is None, reason="there is no git on this machine"),
]


def git(directory: Path, *arguments: str) -> str:
    """What git says."""
    identity = ("-c", "user.name=Ann", "-c", "user.email=ann@example.com")
    ended = subprocess.run(
        ["git", *identity, *arguments], cwd=directory, check=True, capture_output=True, text=True
    )
    return ended.stdout


@pytest.fixture
def repository(here: Place) -> Place:
    """A repository with a commit, a change, a file that is not tracked and one that is ignored."""
    git(here.work, "init", "--quiet")
    (here.work / "kept.txt").write_text("one\ntwo\n")
    (here.work / ".gitignore").write_text("*.log\n.moorage-demo/\n")
    git(here.work, "add", ".")
    git(here.work, "commit", "--quiet", "-m", "first")
    (here.work / "kept.txt").write_text("one\ntwo\nthree\n")
    (here.work / "mine.txt").write_text("not tracked\n")
    return here


def test_only_what_the_turn_changed_is_shown(repository: Place) -> None:
    work = "run sed -i s/two/2/ kept.txt; echo new > made.txt; rm mine.txt; echo x > some.log"
    assert repository.moorage("run", work).returncode == 0
    shown = repository.moorage("diff")
    assert (shown.returncode, shown.stderr) == (0, "")
    lines = shown.stdout.splitlines()
    changed = [line for line in lines if line[:1] in "+-" and line[:3] not in ("+++", "---")]
    assert sorted(changed) == ["+2", "+new", "-not tracked", "-two"]
    assert "+three" not in lines
    assert "some.log" not in shown.stdout
    document = json.loads(repository.moorage("diff", "--json").stdout)
    assert {each["path"]: each["status"] for each in document["files"]} == {
        "kept.txt": "M",
        "made.txt": "A",
        "mine.txt": "D",
    }
    assert "made.txt" in repository.moorage("diff", "--stat").stdout
    # Neither the index nor the branches know.
    assert "made.txt" not in git(repository.work, "ls-files")
    assert git(repository.work, "for-each-ref").count("\n") == 1


def test_a_turn_of_before_can_be_named(repository: Place) -> None:
    first = repository.moorage("run", "run echo one > one.txt", "--json").stdout.splitlines()
    turn_id = json.loads(first[-1])["ended"]["turnId"]
    repository.moorage("run", "run echo two > two.txt")
    newest = repository.moorage("diff", "--json")
    assert [each["path"] for each in json.loads(newest.stdout)["files"]] == ["two.txt"]
    both = repository.moorage("diff", "--turn", turn_id, "--json")
    assert [each["path"] for each in json.loads(both.stdout)["files"]] == ["one.txt", "two.txt"]


def test_what_is_strange_in_a_file_does_not_drive_the_terminal(repository: Place) -> None:
    repository.moorage("run", r"run printf '\033[2Jgone\n' > strange.txt")
    shown = repository.moorage("diff").stdout
    assert "\x1b" not in shown
    assert "gone" in shown


def test_without_a_repository_or_a_turn_it_says_so(here: Place) -> None:
    nothing = here.moorage("diff")
    assert nothing.returncode == 1
    assert "is not known" in nothing.stderr
    assert here.moorage("run", "say hello").returncode == 0
    assert "is not known" in here.moorage("diff").stderr
    assert baselines.take(here.work) == ""
