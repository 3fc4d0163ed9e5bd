"""Files below an open directory: read in parts, replaced whole, listed by name (W7).

All of it blocks. Refusals name the path as the caller wrote it.
"""

from __future__ import annotations

import contextlib
import errno
import heapq
import os
import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from services.common.errors import InvalidArgument
from services.workspace.files import (
    Entry,
    FileAccessFailed,
    FileNotFound,
    FileType,
    Listing,
    NotADirectory,
    NotAFile,
    Part,
)
from services.workspace.providers import directories
from services.workspace.providers.confined import Spot, located
from services.workspace.workspaces import outside_root

_DRAFT: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
# Regular files block too: when another process holds a lease on one.
_READ: Final = os.O_RDONLY | os.O_NONBLOCK
_MODE: Final = 0o777
_NEW_MODE: Final = 0o666
_DRAFT_MODE: Final = 0o600
_TYPES: Final = {
    stat.S_IFREG: FileType.FILE,
    stat.S_IFDIR: FileType.DIRECTORY,
    stat.S_IFLNK: FileType.SYMLINK,
}


@dataclass(frozen=True, slots=True)
class Tree:
    """An open directory and its path without links; nothing outside of it is ever touched.

    What is made belongs to `owner`, the user and the group, or to who runs this when it is None.
    """

    descriptor: int
    path: str
    owner: tuple[int, int] | None = None

    def read(self, path: str, offset: int, limit: int) -> Part:
        """At most `limit` bytes of a file from `offset` on; none behind its end."""
        with self._located(path) as spot:
            _check_file(path, spot)
            with _opened(spot, _READ) as file:
                return Part(os.pread(file, limit, offset), os.fstat(file).st_size)

    def replace(self, path: str, data: bytes, go_ahead: Callable[[], None]) -> None:
        """Give a file, or a new one, this content at once: readers see the old one or the new one.

        Missing directories are made. `go_ahead` is called at the last moment and raises to refuse.
        """
        with self._located(path, make=True) as spot:
            if spot.status is not None:
                _check_file(path, spot)
            with _draft(spot) as (name, file):
                _fill(file, data)
                _liken(file, spot.status, self.owner)
                go_ahead()
                os.rename(name, spot.name, src_dir_fd=spot.parent, dst_dir_fd=spot.parent)

    def entries(self, path: str, after: bytes, limit: int) -> Listing:
        """At most `limit` entries of a directory behind the name `after`, by name; links are not followed."""
        with self._located(path) as spot, _opened(spot, os.O_RDONLY | os.O_DIRECTORY) as directory:
            names = heapq.nsmallest(limit + 1, (name for name in _names(directory) if name > after))
            last = names[limit - 1] if len(names) > limit else b""
            found = (_entry(name, directory) for name in names[:limit])
            return Listing([entry for entry in found if entry is not None], last)

    @contextlib.contextmanager
    def _located(self, path: str, *, make: bool = False) -> Iterator[Spot]:
        try:
            with located(
                self.descriptor, os.fsencode(self.path), path.encode(), make=make, owner=self.owner
            ) as spot:
                yield spot
        except directories.Escape:
            raise outside_root("path", path, self.path) from None
        except FileNotFoundError:
            raise FileNotFound(path=path) from None
        except NotADirectoryError:
            raise NotADirectory(path=path) from None
        except IsADirectoryError:
            raise NotAFile(path=path) from None
        except OSError as error:
            if error.errno in (errno.ENAMETOOLONG, errno.ELOOP):
                raise InvalidArgument.of("path", f"{error.strerror}: {path}") from error
            raise FileAccessFailed(path=path, cause=error.strerror) from error


def _check_file(path: str, spot: Spot) -> None:
    if spot.status is None or not stat.S_ISREG(spot.status.st_mode):
        raise NotAFile(path=path)


@contextlib.contextmanager
def _opened(spot: Spot, flags: int) -> Iterator[int]:
    descriptor = spot.reopen(flags)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def _draft(spot: Spot) -> Iterator[tuple[bytes, int]]:
    """A new file beside what it will replace, by name and open; gone again if that fails."""
    name = f".moorage-{os.urandom(8).hex()}".encode()
    mode = _NEW_MODE if spot.status is None else _DRAFT_MODE
    file = os.open(name, _DRAFT, mode, dir_fd=spot.parent)
    try:
        yield name, file
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name, dir_fd=spot.parent)
        raise
    finally:
        os.close(file)


def _fill(file: int, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(file, rest) :]


def _liken(file: int, replaced: os.stat_result | None, owner: tuple[int, int] | None) -> None:
    """Make it look like what it replaces; something new gets an owner."""
    if replaced is None:
        if owner is not None:
            os.fchown(file, *owner)
    else:
        # The owner too, where we may: an agent may run as another user than this instance.
        with contextlib.suppress(PermissionError):
            os.fchown(file, replaced.st_uid, replaced.st_gid)
        os.fchmod(file, replaced.st_mode & _MODE)
    # Without it a machine that loses power may be left with the name and no content.
    os.fsync(file)


def _names(directory: int) -> Iterator[bytes]:
    with os.scandir(directory) as entries:
        for entry in entries:
            yield os.fsencode(entry.name)


def _entry(name: bytes, directory: int) -> Entry | None:
    """None when it vanished since it was listed."""
    try:
        status = os.stat(name, dir_fd=directory, follow_symlinks=False)
    except FileNotFoundError:
        return None
    kind = _TYPES.get(stat.S_IFMT(status.st_mode), FileType.OTHER)
    return Entry(name, kind, status.st_size if kind is FileType.FILE else 0, status.st_mtime_ns)
