"""What the instance and the helper say to each other: `helper/protocol.h`, as this side writes and reads it."""

from __future__ import annotations

import enum
import os
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from services.workspace.docker.exec.mount import Seen

VERSION: Final = 2
LONGEST: Final = 16 * 1024 * 1024
LONGEST_PIECE: Final = 64 * 1024
STDIN_WINDOW: Final = 256 * 1024
OUTPUT_WINDOW: Final = 1024 * 1024

_HEADER: Final = struct.Struct(">cI")
_START: Final = struct.Struct(">QBHHIII")
_U32: Final = struct.Struct(">I")
_U64: Final = struct.Struct(">Q")
_SIZE: Final = struct.Struct(">HH")
_READY: Final = struct.Struct(">IQQQ")
_DEAD: Final = struct.Struct(">I??")


class Order(bytes, enum.Enum):
    """What the instance says."""

    HELLO = b"H"
    START = b"S"
    STDIN = b"I"
    CLOSE = b"C"
    RESIZE = b"Z"
    SIGNAL = b"G"
    MARK = b"M"
    REAP = b"R"
    READ = b"W"
    UNTIL = b"U"
    KILL = b"K"


class Report(bytes, enum.Enum):
    """What the helper says."""

    READY = b"h"
    STARTED = b"s"
    FAILED = b"f"
    STDOUT = b"o"
    STDERR = b"e"
    WROTE = b"w"
    REFUSED = b"c"
    MARKED = b"m"
    REAPED = b"r"
    DEAD = b"d"
    END = b"x"


class Nonsense(Exception):
    """What came is not of the helper; the text is what it looks like."""


class OtherVersion(Nonsense):
    """It is of a helper, but of one that says everything otherwise."""


class TooLong(Exception):
    """More than a frame can hold."""


def frame(order: Order, payload: bytes | memoryview = b"") -> bytes:
    """A frame to send."""
    return _HEADER.pack(order.value, len(payload)) + payload


def hello(path: str) -> bytes:
    """The first one. It asks what is at that path."""
    return frame(Order.HELLO, _U32.pack(VERSION) + os.fsencode(path))


def start(
    directory: str,
    command: Sequence[str],
    environment: Mapping[str, str],
    *,
    until: int,
    terminal: tuple[int, int] | None,
) -> bytes:
    """What to run, at most until then (nanoseconds of the helper's clock). TooLong."""
    texts = [directory, *command, *(f"{name}={value}" for name, value in environment.items())]
    columns, rows = terminal or (0, 0)
    head = _START.pack(
        until, terminal is not None, columns, rows, OUTPUT_WINDOW, len(command), len(environment)
    )
    payload = head + b"".join(text.encode(errors="surrogateescape") + b"\0" for text in texts)
    if len(payload) > LONGEST:
        raise TooLong
    return frame(Order.START, payload)


def number(order: Order, value: int) -> bytes:
    """SIGNAL, READ."""
    return frame(order, _U32.pack(value))


def until(value: int) -> bytes:
    """UNTIL, in nanoseconds of the helper's clock."""
    return frame(Order.UNTIL, _U64.pack(value))


def resize(columns: int, rows: int) -> bytes:
    """RESIZE."""
    return frame(Order.RESIZE, _SIZE.pack(columns, rows))


@dataclass(frozen=True, slots=True)
class Ready:
    """READY: the helper's clock in nanoseconds, and what it has at the path that it was asked about."""

    now: int
    seen: Seen


def read_ready(payload: bytes) -> Ready:
    """What a helper of this version says. OtherVersion."""
    (version,) = _U32.unpack_from(payload)
    if version != VERSION:
        raise OtherVersion(f"the helper in the container speaks version {version}")
    _, now, device, inode = _READY.unpack(payload)
    return Ready(now, Seen(device, inode))


def read_number(payload: bytes) -> int:
    """STARTED, FAILED, WROTE, MARKED, REAPED."""
    value: int = _U32.unpack(payload)[0]
    return value


def read_dead(payload: bytes) -> tuple[int, bool, bool]:
    """DEAD: the wait status, whether it was killed while it ran, whether memory was used up."""
    status, killed, out_of_memory = _DEAD.unpack(payload)
    return status, killed, out_of_memory


class Reader:
    """Puts frames together out of what comes."""

    def __init__(self) -> None:
        """Nothing came."""
        self._received = bytearray()

    def feed(self, data: bytes) -> Iterator[tuple[Report, bytes]]:
        """The frames that are whole now. Nonsense when it cannot be a helper that speaks."""
        self._received += data
        while len(self._received) >= _HEADER.size:
            kind, length = _HEADER.unpack_from(self._received)
            report = _report_of(kind, length, self._received)
            end = _HEADER.size + length
            if len(self._received) < end:
                return
            payload = bytes(memoryview(self._received)[_HEADER.size : end])
            del self._received[:end]
            yield report, payload


def _report_of(kind: bytes, length: int, received: bytearray) -> Report:
    try:
        report = Report(kind)
    except ValueError:
        raise Nonsense(received.decode(errors="replace").strip()) from None
    if length > LONGEST:
        raise Nonsense(received.decode(errors="replace").strip())
    return report
