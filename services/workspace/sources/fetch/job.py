"""The job: a workspace's root, emptied and then filled, whole or not at all.

From standard input comes a line of JSON (see `Job`), then, when the archive was uploaded, its bytes.
To standard output goes {"filled": true}, {"rejected": "why"} when trying again is of no use, or
{"failed": "why"}.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import http.client
import json
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Final

from services.workspace.providers import directories
from services.workspace.sources.fetch.bounds import Bounds, Rejected
from services.workspace.sources.fetch.git import Means, Wanted, check_out
from services.workspace.sources.fetch.local import Inside
from services.workspace.sources.fetch.sealed import seal
from services.workspace.sources.fetch.unpack import unpack
from services.workspace.sources.fetch.web import NotNow, download
from services.workspace.sources.urls import Forbidden, Hosts, parse

_CHUNK: Final = 256 * 1024
_LONGEST_REASON: Final = 500
# What a name of a source can be at fault for, and not this machine.
_THEIRS: Final = frozenset(
    {
        errno.EEXIST,
        errno.EILSEQ,
        errno.EINVAL,
        errno.EISDIR,
        errno.ELOOP,
        errno.EMLINK,
        errno.ENAMETOOLONG,
        errno.ENOENT,
        errno.ENOTDIR,
        errno.EPERM,
    }
)


@dataclass(frozen=True, slots=True)
class Job:
    """What to fill the working directory with: `kind` is git or archive."""

    kind: str
    url: str
    ref: str
    commit: str
    sha256: str
    hosts: list[str]
    root: str
    state: str
    path: str
    size: int
    entries: int
    memory: int

    @property
    def bounds(self) -> Bounds:
        """The most that it may be."""
        return Bounds(self.size, self.entries, self.memory)


def main() -> None:
    """Do it, and say how it went."""
    job = Job(**json.loads(sys.stdin.buffer.readline()))
    os.umask(0o022)
    try:
        job.bounds.apply()
        seal(".")
        with _place() as place:
            (_git if job.kind == "git" else _archive)(job, place)
            _hand_over(place / "tree")
        answer: dict[str, Any] = {"filled": True}
    except Exception as error:  # noqa: BLE001 (whatever it is, the instance is told)
        answer = _told(error, job.size)
    sys.stdout.write(json.dumps(answer))


def _told(error: Exception, most: int) -> dict[str, str]:
    match error:
        case Rejected() | Forbidden():
            return {"rejected": str(error)[:_LONGEST_REASON]}
        case MemoryError() | RecursionError():
            return {"rejected": "it needs more memory than what is allowed"}
        case OSError() if error.errno == errno.EFBIG:
            return {"rejected": f"it is larger than {most} bytes"}
        case OSError() if error.errno in _THEIRS:
            return {
                "rejected": f"{error.filename!r} of it cannot be made: {error.strerror}"[:_LONGEST_REASON]
            }
        case NotNow() | OSError() | http.client.HTTPException():
            return {"failed": str(error)[:_LONGEST_REASON] or type(error).__name__}
        case _:
            return {"failed": f"{type(error).__name__}: {error}"[:_LONGEST_REASON]}


@contextlib.contextmanager
def _place() -> Iterator[Path]:
    """A directory in the emptied root that nobody else can enter; gone after the block."""
    with directories.opened(".") as root:
        for name in directories.entries_of(root):
            directories.remove_tree(name, root, lambda: False)
        place = Path(directories.where(root), f".moorage-{os.urandom(8).hex()}")
        place.mkdir(mode=0o700)
        try:
            for name in ("tree", "home"):
                (place / name).mkdir()
            yield place
        finally:
            directories.remove_tree(place.name, root, lambda: False)


def _git(job: Job, place: Path) -> None:
    means = Means(Hosts(job.hosts), Inside(job.root, job.state), job.bounds, str(place / "home"), job.path)
    check_out(Wanted(parse(job.url), job.ref, job.commit), means, str(place / "tree"))


def _archive(job: Job, place: Path) -> None:
    with (place / "archive").open("w+b") as file:
        digest = _Digest(file)
        if not job.url:
            digest.copy(sys.stdin.buffer)
        elif (url := parse(job.url)).is_local:
            with (
                Inside(job.root, job.state).file(url.path) as fd,
                os.fdopen(fd, "rb", closefd=False) as source,
            ):
                digest.copy(source)
        else:
            download(url, Hosts(job.hosts), job.size, digest.write)
        if job.sha256 not in {"", digest.hexadecimal}:
            raise Rejected(f"its SHA-256 is {digest.hexadecimal}, not {job.sha256}")
        file.seek(0)
        unpack(file, digest.size, str(place / "tree"), job.bounds)


class _Digest:
    """Writes a file and knows what was written."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._sum = hashlib.sha256()
        self.size = 0

    @property
    def hexadecimal(self) -> str:
        return self._sum.hexdigest()

    def write(self, data: bytes) -> None:
        self.size += len(data)
        self._sum.update(data)
        self._file.write(data)

    def copy(self, source: IO[bytes]) -> None:
        while data := source.read(_CHUNK):
            self.write(data)


def _hand_over(tree: Path) -> None:
    """Move what was made to where it belongs, as the property of whom the root belongs to."""
    owner = Path().stat()
    if (owner.st_uid, owner.st_gid) != (os.geteuid(), os.getegid()):
        for _, below, files, directory in os.fwalk(tree):
            for name in (*below, *files):
                os.chown(name, owner.st_uid, owner.st_gid, dir_fd=directory, follow_symlinks=False)
    with directories.opened(str(tree)) as made:
        for name in directories.entries_of(made):
            os.rename(name, name, src_dir_fd=made)
