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

import tenacity

from services.cli.failures import CommandFailed


@dataclass(frozen=True, slots=True)
class Running:
    """A running set of services; addresses are `host:port`."""

    pid: int
    root: str
    logs: str
    owner: str
    session: str
    journal: str
    workspace: str
    runner: str


class AlreadyRunning(CommandFailed):
    """Another `moorage up` serves this directory."""


class NoState(CommandFailed):
    """There is no place for data and logs."""


def state_directory(root: Path) -> Path:
    """The state of the directory `root`, below $XDG_STATE_HOME."""
    digest = hashlib.sha256(os.fsencode(root)).hexdigest()[:12]
    return _state_home() / "moorage" / f"{root.name or 'root'}-{digest}"


@contextmanager
def announced(state: Path, running: Running) -> Iterator[None]:
    """Let other commands find `running` for as long as the block lasts."""
    path = state / "up.json"
    fresh = path.with_suffix(".new")
    fresh.write_text(json.dumps(asdict(running), indent=2) + "\n", encoding="utf-8")
    fresh.replace(path)
    try:
        yield
    finally:
        path.unlink(missing_ok=True)


@contextmanager
def only_one(state: Path) -> Iterator[None]:
    """Hold the state directory; AlreadyRunning when somebody else does."""
    try:
        # For root's database, which runs as another user, others may pass.
        state.mkdir(mode=0o711 if os.geteuid() == 0 else 0o700, parents=True, exist_ok=True)
        lock = (state / "up.lock").open("w")
    except OSError as error:
        raise NoState(
            f"cannot keep data in {state}: {error.strerror}", hint="XDG_STATE_HOME names another place"
        ) from None
    with lock:
        try:
            _lock(lock.fileno())
        except BlockingIOError:
            raise AlreadyRunning(_told(state)) from None
        (state / "up.json").unlink(missing_ok=True)  # of one that was killed
        yield


def find_running(directory: Path) -> Running | None:
    """The services that serve `directory` or the nearest one above it."""
    for root in (directory, *directory.parents):
        if running := _read(state_directory(root)):
            return running
    return None


def is_served(state: Path) -> bool:
    """Whether somebody holds the state directory, also before and after it can be found."""
    try:
        with (state / "up.lock").open() as lock:
            return _is_held(lock.fileno())
    except OSError:
        return False


# Whoever looks for a running `up` holds the lock for an instant.
@tenacity.retry(
    retry=tenacity.retry_if_exception_type(BlockingIOError),
    stop=tenacity.stop_after_delay(0.5),
    wait=tenacity.wait_fixed(0.02),
    reraise=True,
)
def _lock(descriptor: int) -> None:
    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)


def _read(state: Path) -> Running | None:
    try:
        text = (state / "up.json").read_text(encoding="utf-8")
        with (state / "up.lock").open() as lock:
            if _is_held(lock.fileno()):
                return Running(**json.loads(text))
    except (OSError, ValueError, TypeError):  # not there, or of another version
        pass
    return None


def _is_held(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    return False


def _told(state: Path) -> str:
    running = _read(state)
    where = f": process {running.pid}, serving clients on {running.session}" if running else ""
    return f"moorage up runs for this directory already{where}"


def _state_home() -> Path:
    if given := os.environ.get("XDG_STATE_HOME"):
        return Path(given).absolute()
    try:
        return Path.home() / ".local" / "state"
    except RuntimeError:
        raise NoState("this user has no home directory", hint="XDG_STATE_HOME names a place") from None
