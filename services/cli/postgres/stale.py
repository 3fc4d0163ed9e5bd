"""Data of throwaway servers that lies far from its directory, and stays when the process that made it is killed.

The home of such a server holds a note of its directory while the server is wanted. A later throwaway server removes
homes whose note is old and whose directory nobody holds. Data of any other server has no note, and is never touched.
"""

import fcntl
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from services.cli.postgres.data import end_leftovers
from services.cli.postgres.home import Home

_NOTE = "throwaway"
# Whoever was killed may be about to be started again on its data.
_GRACE = 3600.0


def note(home: Home, directory: Path) -> None:
    """Say that the data need not outlive the process that holds the directory."""
    (home.path / _NOTE).write_text(str(directory))


def withdraw(home: Home) -> None:
    """The server was stopped in order: its data waits for the next start."""
    (home.path / _NOTE).unlink(missing_ok=True)


def remove_stale(home: Home) -> None:
    """Delete what killed processes left beside this home."""
    for found in home.path.parent.glob(f"*/{_NOTE}"):
        with suppress(OSError):  # somebody else removes it too
            if time.time() - found.stat().st_mtime > _GRACE:
                _remove(Home(found.parent, home.programs, home.uid, home.gid), Path(found.read_text()))


def _remove(home: Home, directory: Path) -> None:
    with _unheld(directory) as is_unheld:
        if is_unheld:
            end_leftovers(home.data)
            shutil.rmtree(home.path)


@contextmanager
def _unheld(directory: Path) -> Iterator[bool]:
    """Whether no process holds the directory; none takes it meanwhile."""
    try:
        lock = (directory / "lock").open("rb")
    except FileNotFoundError:
        yield True
        return
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
        else:
            yield True
