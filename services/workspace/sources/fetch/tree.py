"""A directory that is filled from names that nobody has checked: nothing comes to lie outside of it.

Each directory on the way is opened by the one above it and never through a link, and links are
made last of all. So there is no name that leads out, whatever the order.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator
from typing import Final

from services.workspace.sources.fetch.bounds import Rejected, Tally
from services.workspace.sources.fetch.links import check_link

_DIRECTORY: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_NEW: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_DEEPEST: Final = 100
_LATEST: Final = 2**33
LONGEST_TARGET: Final = 4095
"""Bytes of what a symbolic link can lead to."""

Parts = tuple[str, ...]


class Tree:
    """An empty directory at first; `finish` makes its links."""

    def __init__(self, root: str, tally: Tally) -> None:
        """`root` is a path without links to it."""
        self._root = root
        self._tally = tally
        self._links: dict[Parts, str] = {}

    def directory(self, name: str) -> None:
        """Make it, unless it is there."""
        with self._opened(parts_of(name)):
            pass

    def file(self, name: str, *, executable: bool, modified: int, pieces: Iterable[bytes]) -> None:
        """Make a file, in place of one that is there. `modified`: seconds of the epoch."""
        self._tally.entry()
        parts = _named(name)
        with self._opened(parts[:-1]) as parent:
            _clear(parts[-1], parent)
            fd = os.open(parts[-1], _NEW, 0o755 if executable else 0o644, dir_fd=parent)
            with os.fdopen(fd, "wb") as file:
                for piece in pieces:
                    self._tally.grow(len(piece))
                    file.write(piece)
                file.flush()
                # Programs that build by date find them as they were packed.
                os.utime(fd, (moment := min(max(modified, 0), _LATEST), moment))

    def hard_link(self, name: str, existing: str) -> None:
        """Another name of a file that is there."""
        self._tally.entry()
        parts, source = _named(name), _named(existing)
        with self._opened(source[:-1]) as origin, self._opened(parts[:-1]) as parent:
            if parts != source:
                _clear(parts[-1], parent)
                os.link(source[-1], parts[-1], src_dir_fd=origin, dst_dir_fd=parent, follow_symlinks=False)

    def link(self, name: str, target: str) -> None:
        """A symbolic link, made at the end; Rejected when no link can lead there."""
        if not target or "\0" in target or len(os.fsencode(target)) > LONGEST_TARGET:
            raise Rejected(f"the link {name!r} has no target that a link can have")
        self._tally.entry()
        self._tally.grow(len(target))
        self._links[_named(name)] = target

    def finish(self) -> None:
        """Make the links; Rejected when one leads out of the tree."""
        for parts, target in self._links.items():
            with self._opened(parts[:-1]) as parent:
                _clear(parts[-1], parent)
                os.symlink(target, parts[-1], dir_fd=parent)
        for parts in self._links:
            check_link(self._root, parts)

    @contextlib.contextmanager
    def _opened(self, parts: Parts) -> Iterator[int]:
        """The directory, made where it is missing."""
        with contextlib.ExitStack() as held:
            fd = _hold(held, os.open(self._root, _DIRECTORY))
            for part in parts:
                with contextlib.suppress(FileExistsError):
                    os.mkdir(part, 0o755, dir_fd=fd)
                    self._tally.entry()
                fd = _hold(held, os.open(part, _DIRECTORY, dir_fd=fd))
            yield fd


def parts_of(name: str) -> Parts:
    """The parts of a name inside the tree; Rejected when it is none."""
    parts = tuple(part for part in name.split("/") if part not in {"", "."})
    if name.startswith("/") or ".." in parts or "\0" in name:
        raise Rejected(f"{name!r} leads out of it")
    if len(parts) > _DEEPEST:
        raise Rejected(f"it has more than {_DEEPEST} directories in each other")
    return parts


def _named(name: str) -> Parts:
    parts = parts_of(name)
    if not parts:
        raise Rejected(f"{name!r} is no name of a file")
    return parts


def _hold(held: contextlib.ExitStack, fd: int) -> int:
    held.callback(os.close, fd)
    return fd


def _clear(name: str, parent: int) -> None:
    with contextlib.suppress(FileNotFoundError):
        os.unlink(name, dir_fd=parent)
