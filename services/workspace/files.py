"""Files of a workspace: what is told of them, and why an access is refused."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Final

from moorage.common.v1.errors_pb2 import ErrorReason

from services.common.errors import FailedPrecondition, NotFound

MAX_BYTES: Final = 1024 * 1024
MAX_PATH: Final = 4096


class FileType(enum.StrEnum):
    """What an entry of a directory is."""

    FILE = "FILE"
    DIRECTORY = "DIRECTORY"
    SYMLINK = "SYMLINK"
    OTHER = "UNSPECIFIED"


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a file, and the size of the whole in bytes."""

    data: bytes
    size: int


@dataclass(frozen=True, slots=True)
class Entry:
    """An entry of a directory. `size` is that of a file; `modified` is in nanoseconds since 1970."""

    name: bytes
    type: FileType
    size: int
    modified: int


@dataclass(frozen=True, slots=True)
class Listing:
    """Entries by name, and the name behind which more follow; empty when nothing does."""

    entries: list[Entry]
    more_after: bytes


class FileNotFound(NotFound):
    """{path} does not exist in the workspace"""

    reason = ErrorReason.ERROR_REASON_FILE_NOT_FOUND


class NotAFile(FailedPrecondition):
    """{path} is not a regular file"""

    reason = ErrorReason.ERROR_REASON_NOT_A_FILE


class NotADirectory(FailedPrecondition):
    """{path} is not a directory, or something on the way to it is none"""

    reason = ErrorReason.ERROR_REASON_NOT_A_DIRECTORY


class FileAccessFailed(FailedPrecondition):
    """{cause}: {path}"""

    reason = ErrorReason.ERROR_REASON_FILE_ACCESS_FAILED
