"""What each container is given besides its workspace's directory: the helper, from a directory of this machine.

All containers of an instance have that directory mounted, and none can write to it. The helper in it is
replaced as a whole: what runs goes on with the one that it was started from, what is started gets the new one.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import platform
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

from services.workspace.docker.exec.helper import HELPER_PATH, helper_program
from services.workspace.providers import directories

_NAME: Final = Path(HELPER_PATH).name
_DRAFT: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
# Whoever a container's processes are can execute it, and nobody can change it. Nor read it: so the kernel lets
# nobody look into its process from its very first instruction on, when it cannot yet have asked for that itself.
_MODE: Final = 0o111
_DIRECTORY_MODE: Final = 0o755


@dataclass(frozen=True, slots=True)
class Placed:
    """A helper that was put there: its file, as nobody can have changed it without a trace."""

    device: int
    inode: int
    size: int
    mode: int
    owner: int
    changed: int

    @classmethod
    def of(cls, found: os.stat_result) -> Self:
        """As a look at it says."""
        return cls(found.st_dev, found.st_ino, found.st_size, found.st_mode, found.st_uid, found.st_ctime_ns)


class Equipment:
    """Of one instance."""

    def __init__(self, directory: str) -> None:
        """`directory` lies two levels below the state directory; it is not made yet."""
        self.directory: Final = directory
        self._placed: Placed | None = None
        self._one_at_a_time = asyncio.Lock()
        self._under_way: set[asyncio.Task[None]] = set()

    async def ready(self) -> None:
        """Return when the helper of this start is there, for all containers. HelperMissing, OSError.

        What was begun for a caller who goes away is not disturbed by the next one.
        """
        work = asyncio.create_task(self._have_placed())
        self._under_way.add(work)
        work.add_done_callback(self._ended)
        await asyncio.shield(work)

    async def _have_placed(self) -> None:
        async with self._one_at_a_time:
            self._placed = await asyncio.to_thread(_placed, self.directory, self._placed)

    def _ended(self, work: asyncio.Task[None]) -> None:
        self._under_way.discard(work)
        if not work.cancelled():
            # Nobody may be there any more to be told.
            work.exception()


def _placed(directory: str, before: Placed | None) -> Placed:
    if before is not None and is_there(directory, before):
        return before
    # The engine is this machine's own.
    return place(directory, helper_program(platform.machine()))


def is_there(directory: str, placed: Placed) -> bool:
    """Whether it still is, where containers find it. Blocks."""
    try:
        with directories.opened(directory) as own:
            is_open = stat.S_IMODE(os.fstat(own).st_mode) == _DIRECTORY_MODE
            return is_open and Placed.of(os.stat(_NAME, dir_fd=own, follow_symlinks=False)) == placed
    except OSError:
        return False


def place(directory: str, program: bytes) -> Placed:
    """Have this program there, whole at each moment. OSError, which names the directory. Blocks."""
    try:
        with _made(Path(directory)) as own:
            return _replace(program, own)
    except OSError as error:
        raise OSError(error.errno, error.strerror, directory) from error


@contextlib.contextmanager
def _made(path: Path) -> Iterator[int]:
    """Only its last part can be entered by others: through a mount."""
    state = path.parent.parent
    state.mkdir(mode=0o700, parents=True, exist_ok=True)
    with directories.opened(str(state)) as top:
        directories.make(path.parent.name, top)
        with directories.opened(path.parent.name, top) as all_of_them:
            directories.make(path.name, all_of_them)
            with directories.opened(path.name, all_of_them) as own:
                # It is whoever's this service was before; what is right already needs no right to change it.
                if stat.S_IMODE(os.fstat(own).st_mode) != _DIRECTORY_MODE:
                    os.fchmod(own, _DIRECTORY_MODE)
                yield own


def _replace(program: bytes, directory: int) -> Placed:
    for name in directories.entries_of(directory):
        # What a process left that died while it wrote.
        if name != _NAME:
            directories.remove_tree(name, directory, lambda: False)
    draft = f"{_NAME}.{os.urandom(8).hex()}"
    try:
        with os.fdopen(os.open(draft, _DRAFT, 0o600, dir_fd=directory), "wb") as file:
            file.write(program)
            file.flush()
            os.fchmod(file.fileno(), _MODE)
            os.fsync(file.fileno())
            os.rename(draft, _NAME, src_dir_fd=directory, dst_dir_fd=directory)
            return Placed.of(os.fstat(file.fileno()))
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(draft, dir_fd=directory)
        raise
