"""What `moorage up` keeps outside the directory that it serves: data, logs, and where it listens."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Running:
    """A running set of services; addresses are `host:port`."""

    pid: int
    root: str
    owner: str
    session: str
    journal: str
    workspace: str
    runner: str


class AlreadyRunning(Exception):
    """Another `moorage up` serves this directory."""


def state_directory(root: Path) -> Path:
    """The state of the directory `root`, below $XDG_STATE_HOME."""
    base = os.environ.get("XDG_STATE_HOME") or str(Path.home() / ".local" / "state")
    digest = hashlib.sha256(os.fsencode(root)).hexdigest()[:12]
    return Path(base) / "moorage" / f"{root.name or 'root'}-{digest}"


@contextmanager
def announced(state: Path, running: Running) -> Iterator[None]:
    """Let other commands find `running` for as long as the block lasts."""
    path = state / "up.json"
    path.write_text(json.dumps(asdict(running), indent=2) + "\n", encoding="utf-8")
    try:
        yield
    finally:
        path.unlink(missing_ok=True)


@contextmanager
def only_one(state: Path) -> Iterator[None]:
    """Hold the state directory; AlreadyRunning when somebody else does."""
    state.mkdir(parents=True, exist_ok=True)
    with (state / "up.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise AlreadyRunning(
                f"moorage up is running for this directory already (state in {state})"
            ) from None
        yield


def find_running(directory: Path) -> Running | None:
    """The services that serve `directory` or the nearest one above it."""
    for root in (directory, *directory.parents):
        path = state_directory(root) / "up.json"
        if path.exists() and _is_held(path.with_name("up.lock")):
            return Running(**json.loads(path.read_text(encoding="utf-8")))
    return None


def _is_held(lock_path: Path) -> bool:
    with lock_path.open("a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False
