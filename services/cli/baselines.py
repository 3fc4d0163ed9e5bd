"""How a directory looked when a turn began: a tree of its git repository, without a trace in branches or index."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from services.cli.failures import CommandFailed
from services.cli.state import state_directory

_KEPT = 50
# A repository that is larger than this allows costs the turn no more time.
_TIMEOUT = 20.0


class NoBaseline(CommandFailed):
    """How it looked before is not known."""


@dataclass(frozen=True, slots=True)
class Baseline:
    """The tree of a directory before a turn."""

    session_id: str
    turn_id: str
    tree: str
    time: float


def take(directory: Path) -> str:
    """The tree of what is in the directory, ignored files apart; empty outside of a git repository.

    Nothing of the repository changes but that it holds more objects, which git forgets in time.
    """
    with tempfile.TemporaryDirectory() as scratch:
        index = Path(scratch) / "index"
        variables = {**os.environ, "GIT_INDEX_FILE": str(index)}
        try:
            top = Path(_git(directory, os.environ, "rev-parse", "--show-toplevel"))
            own = Path(_git(directory, os.environ, "rev-parse", "--git-path", "index"))
            known = directory / own
            if known.exists():
                # So that only what has changed is read.
                index.write_bytes(known.read_bytes())
            _git(top, variables, "add", "--all")
            return _git(top, variables, "write-tree")
        except (OSError, subprocess.SubprocessError):
            return ""


def keep(directory: Path, session_id: str, turn_id: str, tree: str) -> None:
    """Remember the tree of a turn; older ones are forgotten."""
    if not tree:
        return
    place = _place(directory)
    try:
        place.mkdir(parents=True, exist_ok=True, mode=0o700)
        baseline = Baseline(session_id, turn_id, tree, time.time())
        (place / f"{time.time_ns()}.json").write_text(json.dumps(asdict(baseline)), encoding="utf-8")
        for old in sorted(place.glob("*.json"))[:-_KEPT]:
            old.unlink(missing_ok=True)
    except OSError:
        return


def find(directory: Path, turn_id: str = "") -> Baseline:
    """The baseline of a turn, or of the newest one."""
    for file in sorted(_place(directory).glob("*.json"), reverse=True):
        try:
            baseline = Baseline(**json.loads(file.read_text(encoding="utf-8")))
        except (OSError, ValueError, TypeError):
            continue
        if turn_id in ("", baseline.turn_id):
            return baseline
    which = f"turn {turn_id}" if turn_id else "a turn"
    raise NoBaseline(
        f"how {directory} looked before {which} is not known",
        hint="`moorage run` remembers it in a git repository",
    )


def _place(directory: Path) -> Path:
    return state_directory(directory) / "baselines"


def _git(directory: Path, variables: Mapping[str, str], *arguments: str) -> str:
    ended = subprocess.run(
        ("git", *arguments),
        cwd=directory,
        env=dict(variables),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=True,
        timeout=_TIMEOUT,
    )
    return ended.stdout.strip()
