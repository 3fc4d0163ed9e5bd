"""A copy of a git repository of this machine: git reads that, and never what others can write to.

What lies in a repository leads git elsewhere: a `.git` that is a file, links, `commondir`, alternates. Here
each directory is opened from the one above it, nothing is followed, and what would have to be is Rejected.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from services.workspace.providers.directories import entries_of
from services.workspace.sources.fetch.bounds import Bounds, Rejected, Tally
from services.workspace.sources.fetch.repository import Git
from services.workspace.sources.fetch.web import NotNow

# A pipe must not hold up whoever opens it.
_OPEN: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_NOT_OPENED: Final = frozenset({errno.ELOOP, errno.ENXIO, errno.ENODEV})
_CHUNK: Final = 256 * 1024
_DEEPEST: Final = 32
_LONGEST_CONFIGURATION: Final = 1024 * 1024
_LOOSE_DIRECTORY: Final = re.compile(r"[0-9a-f]{2}")
_LOOSE: Final = re.compile(r"[0-9a-f]{38}|[0-9a-f]{62}")
_PACK: Final = re.compile(r"pack-[0-9a-f]+\.(pack|idx)")
_ALTERNATES: Final = ("alternates", "http-alternates")

_FORMATS: Final = frozenset({"0", "1"})
# What they change is not copied.
_HARMLESS: Final = frozenset({"noop", "preciousobjects", "relativeworktrees", "worktreeconfig"})
_SHA256: Final = ("objectformat", "sha256")
_USUAL: Final = frozenset({("objectformat", "sha1"), ("refstorage", "files"), _SHA256})
_CONFIGURATION: Final = "[core]\n\trepositoryformatversion = {}\n\tbare = true\n"
_OF_SHA256: Final = "[extensions]\n\tobjectFormat = sha256\n"


@dataclass(frozen=True, slots=True)
class _Place:
    """An open directory of the repository, what it is called in reasons, and where its copy goes."""

    fd: int
    shown: str
    target: Path
    tally: Tally


def copy(git: Git, directory: int, shown: str, target: Path, bounds: Bounds) -> None:
    """Make `target` a bare copy of the repository that an open directory is, or has as `.git`.

    It may be written to meanwhile: refs go first, so that there are the objects that they name.
    Rejected, NotNow.
    """
    top = _Place(directory, shown, target, Tally(bounds))
    with _repository(top) as place:
        _refuse(place, "commondir")
        text = _configuration(git, place)
        with _there(place):
            _file(place, "HEAD")
        with contextlib.suppress(FileNotFoundError):
            _tree(place, "refs", 1)
        # What is taken out of there meanwhile has come into this one before.
        for name in ("packed-refs", "shallow"):
            with contextlib.suppress(FileNotFoundError):
                _file(place, name)
        with _there(place), _entered(place, "objects") as objects:
            _objects(objects)
    (target / "refs").mkdir(exist_ok=True)
    (target / "config").write_text(text, encoding="utf-8")


@contextlib.contextmanager
def _repository(top: _Place) -> Iterator[_Place]:
    try:
        fd = _open(top, ".git")
    except FileNotFoundError:
        top.target.mkdir()
        yield top
        return
    try:
        _check_directory(fd, f"{top.shown}/.git")
        top.target.mkdir()
        yield _Place(fd, f"{top.shown}/.git", top.target, top.tally)
    finally:
        os.close(fd)


@contextlib.contextmanager
def _there(place: _Place) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError as error:
        raise Rejected(f"{place.shown} is no git repository") from error


def _objects(place: _Place) -> None:
    """Loose ones first: what is packed meanwhile is in a pack then."""
    with contextlib.suppress(FileNotFoundError), _entered(place, "info") as info:
        for name in _ALTERNATES:
            _refuse(info, name)
    for name in sorted(filter(_LOOSE_DIRECTORY.fullmatch, entries_of(place.fd))):
        with contextlib.suppress(FileNotFoundError), _entered(place, name) as directory:
            _files(directory, _LOOSE)
    with contextlib.suppress(FileNotFoundError), _entered(place, "pack") as packs:
        if not _files(packs, _PACK):
            raise NotNow(f"{packs.shown} was repacked while it was read")


def _files(place: _Place, pattern: re.Pattern[str]) -> bool:
    """Copy those of these names; whether none of them vanished."""
    whole = True
    for name in filter(pattern.fullmatch, entries_of(place.fd)):
        try:
            _file(place, name)
        except FileNotFoundError:
            whole = False
    return whole


def _tree(place: _Place, name: str, depth: int) -> None:
    if depth > _DEEPEST:
        raise Rejected(f"{place.shown} is more than {_DEEPEST} directories deep")
    with _entered(place, name) as directory:
        for entry in entries_of(directory.fd):
            with contextlib.suppress(FileNotFoundError):
                if stat.S_ISDIR(os.stat(entry, dir_fd=directory.fd, follow_symlinks=False).st_mode):
                    _tree(directory, entry, depth + 1)
                else:
                    _file(directory, entry)


def _refuse(place: _Place, name: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        os.stat(name, dir_fd=place.fd, follow_symlinks=False)
        raise Rejected(f"{place.shown}/{name} leads to another repository, which is not followed")


@contextlib.contextmanager
def _entered(place: _Place, name: str) -> Iterator[_Place]:
    fd = _open(place, name)
    try:
        shown = f"{place.shown}/{name}"
        _check_directory(fd, shown)
        place.tally.entry()
        target = place.target / name
        target.mkdir()
        yield _Place(fd, shown, target, place.tally)
    finally:
        os.close(fd)


def _open(place: _Place, name: str) -> int:
    try:
        return os.open(name, _OPEN, dir_fd=place.fd)
    except OSError as error:
        if error.errno in _NOT_OPENED:
            raise Rejected(f"{place.shown}/{name} is a link, or no file: it is not followed") from error
        raise


def _check_directory(fd: int, shown: str) -> None:
    if not stat.S_ISDIR(os.fstat(fd).st_mode):
        raise Rejected(f"{shown} is not a directory, and what it may lead to is not followed")


def _file(place: _Place, name: str) -> None:
    with _reading(place, name) as chunks, (place.target / name).open("wb") as target:
        for data in chunks:
            target.write(data)


@contextlib.contextmanager
def _reading(place: _Place, name: str) -> Iterator[Iterator[bytes]]:
    fd = _open(place, name)
    try:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise Rejected(f"{place.shown}/{name} is not a file")
        place.tally.entry()
        yield _chunks(fd, place.tally)
    finally:
        os.close(fd)


def _chunks(fd: int, tally: Tally) -> Iterator[bytes]:
    while data := os.read(fd, _CHUNK):
        tally.grow(len(data))
        yield data


def _configuration(git: Git, place: _Place) -> str:
    """What the copy is to be read with: how its objects are named, and nothing else of what is said there."""
    form, extensions = "0", set[tuple[str, str]]()
    for key, value in _configured(git, place):
        section, _, name = key.partition(".")
        if key == "core.repositoryformatversion":
            form = value
        elif section == "extensions" and name not in _HARMLESS:
            extensions.add((name, value.lower()))
    if form not in _FORMATS:
        raise Rejected(f"{place.shown} is of a format that is not known here: {form}")
    if other := extensions - _USUAL:
        raise Rejected(f"{place.shown} has an extension that is not known here: {min(other)[0]}")
    if _SHA256 in extensions:
        return _CONFIGURATION.format(1) + _OF_SHA256
    return _CONFIGURATION.format(0)


def _configured(git: Git, place: _Place) -> Iterator[tuple[str, str]]:
    """The names and values of its configuration, as git reads a file that is not in use."""
    data = bytearray()
    with contextlib.suppress(FileNotFoundError), _reading(place, "config") as chunks:
        for chunk in chunks:
            data += chunk
            if len(data) > _LONGEST_CONFIGURATION:
                raise Rejected(f"{place.shown}/config is larger than {_LONGEST_CONFIGURATION} bytes")
    file = Path(git.home, "foreign")
    file.write_bytes(data)
    try:
        listed = git.run("config", "--no-includes", "--file", str(file), "--list", "-z")
    except NotNow as error:
        raise Rejected(f"{place.shown}/config cannot be read: {error}") from error
    finally:
        file.unlink()
    for line in listed.split("\0")[:-1]:
        key, _, value = line.partition("\n")
        yield key, value
