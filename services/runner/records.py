"""A turn's records on their way to the journal: numbered, bounded, kept until acknowledged (R1, R2)."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from moorage.common.v1.record_pb2 import ErrorRecord, RecordBody
from moorage.common.v1.turn_pb2 import TurnError

from services.common.errors import as_text
from services.runner.texts import storable

# Leaves room in a message of 1 MiB for grant and names.
MAX_RECORD_BYTES: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class Numbered:
    """A record with its number within the turn; `size` in bytes."""

    turn_seq: int
    body: RecordBody
    size: int


class RecordBuffer:
    """Records that are not acknowledged yet, in order. When it is full, whoever adds waits.

    The newest failure of the journal, if final, is raised to all who add or flush.
    """

    def __init__(
        self, changed: Callable[[], None], *, max_bytes: int = MAX_RECORD_BYTES, max_records: int = 1000
    ) -> None:
        """`changed` is called when there is something to send; a single record may exceed the bounds."""
        self._changed = changed
        self._max_bytes = max_bytes
        self._max_records = max_records
        self._kept: deque[Numbered] = deque()
        self._bytes = 0
        self._sent = 0
        self._failure: Exception | None = None
        self._moved = asyncio.Event()
        self.last_turn_seq = 0

    async def add(self, body: RecordBody) -> int:
        """Number a record and keep it; one that cannot be stored becomes an error in its place (R3)."""
        if (size := body.ByteSize()) > MAX_RECORD_BYTES:
            body = too_large(body, size)
            size = body.ByteSize()
        self._raise_failure()
        while self._kept and not self._has_room(size):
            await self._until_moved()
        self.last_turn_seq += 1
        self._kept.append(Numbered(self.last_turn_seq, body, size))
        self._bytes += size
        self._changed()
        return self.last_turn_seq

    async def flush(self) -> None:
        """Return when all records are acknowledged."""
        self._raise_failure()
        while self._kept:
            await self._until_moved()

    @property
    def has_unsent(self) -> bool:
        """Whether there is something to send."""
        return self._failure is None and self._sent < len(self._kept)

    @property
    def next_size(self) -> int:
        """Bytes of the next record to send; 0 without one."""
        return self._kept[self._sent].size if self.has_unsent else 0

    def take(self) -> Numbered | None:
        """The next record to send, which then counts as sent."""
        if not self.has_unsent:
            return None
        self._sent += 1
        return self._kept[self._sent - 1]

    def acknowledge(self, turn_seq: int) -> None:
        """The records up to this one are stored."""
        while self._kept and self._kept[0].turn_seq <= turn_seq:
            self._bytes -= self._kept.popleft().size
            self._sent = max(0, self._sent - 1)
        self._moved.set()

    def resend(self) -> None:
        """Of what was sent and not acknowledged nothing is known: all of it is sent again."""
        self._sent = 0
        if self._kept:
            self._changed()

    def replace(self, turn_seq: int, body: RecordBody) -> None:
        """Say something else under this number, because what was said is refused for its content."""
        for index, kept in enumerate(self._kept):
            if kept.turn_seq == turn_seq:
                self._kept[index] = Numbered(turn_seq, body, body.ByteSize())
                self._bytes += body.ByteSize() - kept.size

    def knows(self, turn_seq: int) -> bool:
        """Whether this record can be sent (again)."""
        return bool(self._kept) and self._kept[0].turn_seq <= turn_seq <= self._kept[-1].turn_seq

    def fail(self, error: Exception) -> None:
        """Nothing more will be stored."""
        self._failure = self._failure or error
        self._moved.set()

    def _has_room(self, size: int) -> bool:
        return len(self._kept) < self._max_records and self._bytes + size <= self._max_bytes

    async def _until_moved(self) -> None:
        self._moved.clear()
        await self._moved.wait()
        self._raise_failure()

    def _raise_failure(self) -> None:
        if self._failure is not None:
            raise self._failure


def error_body(code: str, message: str, **metadata: object) -> RecordBody:
    """The record that something went wrong."""
    texts = {key: storable(as_text(value)) for key, value in metadata.items()}
    error = TurnError(code=code, message=storable(message), metadata=texts)
    return RecordBody(error=ErrorRecord(error=error))


def too_large(body: RecordBody, size: int) -> RecordBody:
    """What stands in the place of a record that is too large to be stored."""
    kind = body.WhichOneof("body")
    return error_body(
        "RECORD_TOO_LARGE",
        f"a record of kind {kind} has {size} bytes, at most {MAX_RECORD_BYTES} can be stored",
        kind=kind,
        bytes=size,
        maximum=MAX_RECORD_BYTES,
    )
