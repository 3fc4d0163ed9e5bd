"""Directories by descriptor: what was checked is what is used, whatever is renamed or linked meanwhile (W7)."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

_OPEN: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_PIN: Final = os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC
_ENTRY: Final = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC
_DEEPEST: Final = 64
_OWN: Final = 0o700


class Escape(Exception):
    """A path leads out of the directory it must stay in."""


def is_inside(path: str, root: str) -> bool:
    """Whether an absolute path without links is the root or lies below it."""
    return Path(path).is_relative_to(root)


@contextlib.contextmanager
def pinned(path: str, within: str) -> Iterator[int]:
    """The directory that `path` leads to, held open; Escape when that is not inside `within`.

    Links are followed, and then the open directory is asked where it really is. OSError when
    there is no such directory.
    """
    fd = os.open(path, _PIN)
    try:
        if not is_inside(where(fd), within):
            raise Escape(path)
        yield fd
    finally:
        os.close(fd)


def where(fd: int) -> str:
    """Where an open directory is now, without links."""
    return str(Path(f"/proc/self/fd/{fd}").readlink())


@contextlib.contextmanager
def opened(name: str, parent: int | None = None) -> Iterator[int]:
    """A directory that is no link, held open for reading."""
    fd = os.open(name, _OPEN, dir_fd=parent)
    try:
        yield fd
    finally:
        os.close(fd)


def entries_of(directory: int) -> list[str]:
    """The names in an open directory."""
    with os.scandir(directory) as entries:
        return [entry.name for entry in entries]


def make(name: str, parent: int) -> None:
    """Make a directory that only its owner can enter, unless it is there."""
    with contextlib.suppress(FileExistsError):
        os.mkdir(name, _OWN, dir_fd=parent)


def refuse_mounts(path: str) -> None:
    """OSError when something is mounted below: what it shows is not ours to remove."""
    for line in Path("/proc/self/mountinfo").read_bytes().splitlines():
        mount_point = os.fsdecode(line.split(b" ")[4].decode("unicode_escape").encode("latin-1"))
        if is_inside(mount_point, path):
            raise OSError(errno.EBUSY, "something is mounted there", mount_point)


def remove_tree(name: str, parent: int, give_up: Callable[[], bool]) -> None:
    """Remove what is called `name`, with all below it; links are removed, never followed.

    Directories that may not be read or written are opened up first. InterruptedError when
    `give_up` says so in between: the rest is still there, under the same name.
    """
    try:
        if not _is_directory(name, parent):
            os.unlink(name, dir_fd=parent)
            return
    except FileNotFoundError:
        return
    _open_up(name, parent)
    with opened(name, parent) as top:
        while entries := entries_of(top):
            for entry in entries:
                _remove_entry(entry, top, top, 1, give_up)
    os.rmdir(name, dir_fd=parent)


def _remove_entry(name: str, parent: int, top: int, depth: int, give_up: Callable[[], bool]) -> None:
    if give_up():
        raise InterruptedError("told to stop removing")
    if not _is_directory(name, parent):
        os.unlink(name, dir_fd=parent)
        return
    _open_up(name, parent)
    if depth > _DEEPEST:
        # Neither the stack nor the open files grow with the depth: deep trees are moved up and come again.
        os.rename(name, f".moorage-{os.urandom(8).hex()}", src_dir_fd=parent, dst_dir_fd=top)
        return
    with opened(name, parent) as directory:
        for entry in entries_of(directory):
            _remove_entry(entry, directory, top, depth + 1, give_up)
    os.rmdir(name, dir_fd=parent)


def _is_directory(name: str, parent: int) -> bool:
    return stat.S_ISDIR(os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode)


def _open_up(name: str, parent: int) -> None:
    fd = os.open(name, _ENTRY, dir_fd=parent)
    try:
        status = os.fstat(fd)
        if stat.S_ISDIR(status.st_mode) and status.st_mode & _OWN != _OWN:
            Path(f"/proc/self/fd/{fd}").chmod(_OWN)
    finally:
        os.close(fd)
