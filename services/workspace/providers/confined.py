"""Paths below an open directory, whatever is renamed or linked meanwhile (W7).

A path is walked one name at a time, each opened relative to the directory before it and never
followed. What a link says is read from the open link and walked the same way, so the kernel
never resolves anything that was not looked at. Opening with O_PATH touches nothing: no device
reacts, no FIFO blocks. A directory that was inside when it was opened stays the one used, even
if somebody moves it away.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from services.workspace.providers.directories import Escape

_ENTRY: Final = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC
# Links can make a short path endless, and `..` starts again at the root.
_MOST_STEPS: Final = 8192


@dataclass(frozen=True, slots=True)
class Spot:
    """Where a path leads: a name in an open directory, and what has that name now.

    `entry` is a descriptor of it that can only be looked at, `status` what it is; both are None
    when there is nothing. It is never a link. A path that ends with `/` or at the root leads to
    the name `.` in the directory itself.
    """

    parent: int
    name: bytes
    entry: int | None
    status: os.stat_result | None

    def reopen(self, flags: int) -> int:
        """The very same entry, open for use."""
        return os.open(f"/proc/self/fd/{self.entry}", flags | os.O_CLOEXEC)


@contextlib.contextmanager
def located(
    root: int, root_path: bytes, path: bytes, *, make: bool = False, owner: tuple[int, int] | None = None
) -> Iterator[Spot]:
    """Where `path` leads below the open directory `root`, whose own path is `root_path`.

    With `make`, directories that are missing on the way are made, for `owner` if there is one
    (user and group), and nothing need be at its end.
    Raises Escape when it leads out, and OSError as the kernel would.
    """
    walk = _Walk(root, root_path, make=make, owner=owner)
    try:
        yield walk.to(path)
    finally:
        walk.close()


class _Walk:
    """Holds two descriptors at most, however deep it goes."""

    def __init__(self, root: int, root_path: bytes, *, make: bool, owner: tuple[int, int] | None) -> None:
        self._root = root
        self._root_names = _names(root_path)
        self._make = make
        self._owner = owner
        self._todo: deque[bytes] = deque()
        self._done: list[bytes] = []
        self._directory = root
        self._entry: int | None = None

    def to(self, path: bytes) -> Spot:
        self._insert(path)
        for _ in range(_MOST_STEPS):
            if not self._todo:
                return Spot(self._directory, b".", self._directory, os.fstat(self._directory))
            if spot := self._step(self._todo.popleft()):
                return spot
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))

    def close(self) -> None:
        self._change(self._root)
        self._let_go()

    def _step(self, name: bytes) -> Spot | None:
        if name == b"..":
            self._leave()
        elif name != b".":
            return self._look(name)
        return None

    def _look(self, name: bytes) -> Spot | None:
        try:
            self._entry = os.open(name, _ENTRY, dir_fd=self._directory)
        except FileNotFoundError:
            return self._missing(name)
        return self._enter(name, self._entry, os.fstat(self._entry))

    def _enter(self, name: bytes, entry: int, status: os.stat_result) -> Spot | None:
        if stat.S_ISLNK(status.st_mode):
            target = os.readlink(b"", dir_fd=entry)
            self._let_go()
            self._insert(target)
            return None
        if not self._todo:
            return Spot(self._directory, name, entry, status)
        if not stat.S_ISDIR(status.st_mode):
            raise OSError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
        self._done.append(name)
        self._change(entry)
        self._entry = None
        return None

    def _missing(self, name: bytes) -> Spot | None:
        if not self._make:
            raise OSError(errno.ENOENT, os.strerror(errno.ENOENT))
        if not self._todo:
            return Spot(self._directory, name, None, None)
        with contextlib.suppress(FileExistsError):
            os.mkdir(name, dir_fd=self._directory)
            if self._owner is not None:
                os.chown(name, *self._owner, dir_fd=self._directory, follow_symlinks=False)
        # Whatever has the name now is looked at like anything else.
        self._todo.appendleft(name)
        return None

    def _leave(self) -> None:
        """Go to the parent by its name from the root: a directory's own `..` may have been moved."""
        if not self._done:
            raise Escape
        self._todo.extendleft(reversed(self._done[:-1]))
        self._restart()

    def _insert(self, path: bytes) -> None:
        names = _names(path)
        if path.startswith(b"/"):
            names = self._below_root(names)
            self._restart()
        self._todo.extendleft(reversed(names))

    def _below_root(self, names: list[bytes]) -> list[bytes]:
        depth = len(self._root_names)
        if names[:depth] != self._root_names:
            raise Escape
        return names[depth:]

    def _restart(self) -> None:
        self._done = []
        self._change(self._root)

    def _change(self, directory: int) -> None:
        if self._directory != self._root:
            os.close(self._directory)
        self._directory = directory

    def _let_go(self) -> None:
        if self._entry is not None:
            os.close(self._entry)
            self._entry = None


def _names(path: bytes) -> list[bytes]:
    """The names in a path; `.` only at its end, where it asks for a directory."""
    names = [name for name in path.split(b"/") if name not in (b"", b".")]
    if names and path.endswith((b"/", b"/.")):
        names.append(b".")
    return names
