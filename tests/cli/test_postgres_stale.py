"""What killed processes leave of throwaway servers is removed, and nothing else."""

from __future__ import annotations

import fcntl
import os
import time
from pathlib import Path

import pytest

from services.cli.postgres.home import Home
from services.cli.postgres.stale import note, remove_stale, withdraw


@pytest.fixture
def home(tmp_path: Path) -> Home:
    """That of the server which starts now."""
    return make_home(tmp_path, "now")


def make_home(tmp_path: Path, name: str) -> Home:
    path = tmp_path / "homes" / name
    (path / "data").mkdir(parents=True)
    return Home(path, tmp_path, os.geteuid(), os.getegid())


def left(tmp_path: Path, name: str, *, age: float = 7200.0) -> Home:
    """A home whose owner noted it so many seconds ago, and was killed."""
    home, directory = make_home(tmp_path, name), tmp_path / "directories" / name
    directory.mkdir(parents=True)
    (directory / "lock").touch()
    note(home, directory)
    noted = time.time() - age
    os.utime(home.path / "throwaway", (noted, noted))
    return home


def test_what_nobody_holds_is_removed(home: Home, tmp_path: Path) -> None:
    killed, gone = left(tmp_path, "killed"), left(tmp_path, "gone")
    (tmp_path / "directories" / "gone" / "lock").unlink()
    (tmp_path / "directories" / "gone").rmdir()
    remove_stale(home)
    assert not killed.path.exists()
    assert not gone.path.exists()
    assert home.path.exists()


def test_what_is_held_recent_or_to_be_kept_stays(home: Home, tmp_path: Path) -> None:
    held, recent, stopped = (
        left(tmp_path, "held"),
        left(tmp_path, "recent", age=60.0),
        left(tmp_path, "stopped"),
    )
    kept = make_home(tmp_path, "kept")
    withdraw(stopped)
    with (tmp_path / "directories" / "held" / "lock").open("rb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        remove_stale(home)
    assert all(each.path.exists() for each in (held, recent, stopped, kept, home))
