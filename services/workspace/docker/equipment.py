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
from pathlib import Path
from typing import Final

from services.workspace.docker.exec.helper import HELPER_PATH, helper_program
from services.workspace.providers import directories

_NAME: Final = Path(HELPER_PATH).name
_READ: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_DRAFT: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
# Whoever a container's processes are can execute it, and nobody can change it.
_MODE: Final = 0o555
_DIRECTORY_MODE: Final = 0o755


class Equipment:
    """Of one instance."""

    def __init__(self, directory: str) -> None:
        """`directory` lies two levels below the state directory; it is not made yet."""
        self.directory: Final = directory
        self._is_ready = False
        self._one_at_a_time = asyncio.Lock()

    async def ready(self) -> None:
        """Return when the helper is there for containers that start. HelperMissing, OSError."""
        async with self._one_at_a_time:
            # The engine is this machine's own.
            await asyncio.to_thread(place, self.directory, helper_program(platform.machine()))
            self._is_ready = True

    async def renewed(self) -> None:
        """The same for those that run: they have the one of an earlier start of this instance, until it was ready once."""
        if not self._is_ready:
            await self.ready()


def place(directory: str, program: bytes) -> None:
    """Have exactly this program there, whole at each moment. Blocks."""
    with _made(Path(directory)) as own:
        if not _is_there(program, own):
            _replace(program, own)


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
                os.fchmod(own, _DIRECTORY_MODE)
                yield own


def _is_there(program: bytes, directory: int) -> bool:
    try:
        fd = os.open(_NAME, _READ, dir_fd=directory)
    except OSError:
        return False
    with os.fdopen(fd, "rb") as file:
        mode = os.fstat(fd).st_mode
        return stat.S_ISREG(mode) and stat.S_IMODE(mode) == _MODE and file.read() == program


def _replace(program: bytes, directory: int) -> None:
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
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(draft, dir_fd=directory)
        raise
