"""Archives, unpacked: tar (plain, gzip, bzip2, xz) and zip, found by what they begin with."""

from __future__ import annotations

import bz2
import calendar
import gzip
import lzma
import stat
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from typing import IO, Final, Protocol

from services.workspace.sources.fetch.bounds import Bounds, Rejected, Tally
from services.workspace.sources.fetch.tree import LONGEST_TARGET, Tree

_CHUNK: Final = 256 * 1024
_UNIX: Final = 3
_ENCRYPTED: Final = 0x1

_Open = Callable[[IO[bytes]], "_Readable"]
_PACKINGS: Final[dict[bytes, _Open]] = {
    b"\x1f\x8b": lambda file: gzip.GzipFile(fileobj=file),
    b"BZh": bz2.BZ2File,
    b"\xfd7zXZ\0": lzma.LZMAFile,
}
_ZIPS: Final = (b"PK\x03\x04", b"PK\x05\x06")
_UNREADABLE: Final = (
    tarfile.TarError,
    zipfile.BadZipFile,
    zlib.error,
    lzma.LZMAError,
    struct.error,
    ArithmeticError,
    EOFError,
    LookupError,
    ValueError,
    NotImplementedError,
    RuntimeError,
)


class _Readable(Protocol):
    def read(self, size: int, /) -> bytes: ...


class _Unpacked:
    """Counts what a packing gives, files or not: nothing is read past the bounds."""

    def __init__(self, file: _Readable, bounds: Bounds, packed: int) -> None:
        self._file = file
        # Headers and padding are not what was asked for, but they are little.
        self._tally = Tally(Bounds(2 * bounds.size, bounds.entries, bounds.memory), packed)

    def read(self, size: int) -> bytes:
        data = self._file.read(size)
        self._tally.grow(len(data))
        return data


def unpack(file: IO[bytes], size: int, root: str, bounds: Bounds) -> None:
    """Fill the empty directory `root` from an archive of `size` bytes; Rejected when it is none, or bad."""
    start = file.read(6)
    file.seek(0)
    tree = Tree(root, Tally(bounds, size))
    try:
        if start.startswith(_ZIPS):
            _unzip(file, tree)
        else:
            _untar(_Unpacked(_opened(file, start), bounds, size), tree)
    except _UNREADABLE as error:
        raise Rejected(f"it cannot be read as an archive: {error}") from error
    except OSError as error:
        # Those that come from reading it have no number.
        if error.errno is None:
            raise Rejected(f"it cannot be read as an archive: {error}") from error
        raise
    tree.finish()


def _opened(file: IO[bytes], start: bytes) -> _Readable:
    for magic, how in _PACKINGS.items():
        if start.startswith(magic):
            return how(file)
    return file


def _untar(file: _Unpacked, tree: Tree) -> None:
    with tarfile.open(fileobj=file, mode="r|") as archive:  # type: ignore[call-overload]  # it only reads
        for member in archive:
            # It would keep them all.
            archive.members = []
            _add(archive, member, tree)


def _add(archive: tarfile.TarFile, member: tarfile.TarInfo, tree: Tree) -> None:
    if member.isdir():
        tree.directory(member.name)
    elif member.isreg():
        content = archive.extractfile(member)
        if content is None or member.size < 0:
            raise Rejected(f"{member.name!r} has no content")
        executable = bool(member.mode & stat.S_IXUSR)
        tree.file(member.name, executable=executable, modified=int(member.mtime), pieces=_pieces(content))
    elif member.issym():
        tree.link(member.name, member.linkname)
    elif member.islnk():
        tree.hard_link(member.name, member.linkname)
    else:
        raise Rejected(f"{member.name!r} is neither file, directory nor link")


def _unzip(file: IO[bytes], tree: Tree) -> None:
    with zipfile.ZipFile(file) as archive:
        for member in archive.infolist():
            _add_zipped(archive, member, tree)


def _add_zipped(archive: zipfile.ZipFile, member: zipfile.ZipInfo, tree: Tree) -> None:
    if member.flag_bits & _ENCRYPTED:
        raise Rejected(f"{member.filename!r} is encrypted")
    mode = member.external_attr >> 16 if member.create_system == _UNIX else 0
    kind = stat.S_IFMT(mode)
    if member.is_dir():
        tree.directory(member.filename)
    elif kind in {0, stat.S_IFREG}:
        with archive.open(member) as content:
            executable = bool(mode & stat.S_IXUSR)
            moment = _moment(*member.date_time)
            tree.file(member.filename, executable=executable, modified=moment, pieces=_pieces(content))
    elif kind == stat.S_IFLNK:
        with archive.open(member) as content:
            tree.link(member.filename, _target(content))
    else:
        raise Rejected(f"{member.filename!r} is neither file, directory nor link")


def _moment(year: int, month: int, day: int, *time: int) -> int:
    """Seconds of the epoch. Packers that know no date write zeros, which no calendar has."""
    return calendar.timegm((year, min(max(month, 1), 12), max(day, 1), *time, 0, 0, 0))


def _target(content: IO[bytes]) -> str:
    return content.read(LONGEST_TARGET + 1).decode(errors="surrogateescape")


def _pieces(content: IO[bytes]) -> Iterator[bytes]:
    while piece := content.read(_CHUNK):
        yield piece
