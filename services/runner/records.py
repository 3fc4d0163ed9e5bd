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
    """A record with its number within the turn."""

    turn_seq: int
    body: RecordBody


class Slot:
    """A record in its buffer. One that is `reserved` is stored by its owner, not by whoever sends the others."""

    def __init__(self, body: RecordBody, *, reserved: bool = False) -> None:
        """`size` is in bytes."""
        self.body = body
        self.size = body.ByteSize()
        self.reserved = reserved


class RecordBuffer:
    """Records that are not acknowledged yet, in order. When it is full, whoever adds waits.

    Nothing behind a reserved slot is sent before that is settled, so what stands there has no
    number that anybody else knows: it moves up when the slot is withdrawn. The newest
    failure of the journal, if final, is raised to all who wait.
    """

    def __init__(
        self, changed: Callable[[], None], *, max_bytes: int = MAX_RECORD_BYTES, max_records: int = 1000
    ) -> None:
        """`changed` is called when there is something to send; a single record may exceed the bounds."""
        self._changed = changed
        self._max_bytes = max_bytes
        self._max_records = max_records
        self._kept: deque[Slot] = deque()
        self._bytes = 0
        self._sent = 0
        self._failure: Exception | None = None
        self._moved = asyncio.Event()
        self.last_turn_seq = 0

    async def add(self, body: RecordBody) -> int:
        """Number a record and keep it; one that cannot be stored becomes an error in its place (R3)."""
        if (size := body.ByteSize()) > MAX_RECORD_BYTES:
            body = too_large(body, size)
        await self._keep(Slot(body))
        self._changed()
        return self.last_turn_seq

    async def reserve(self, body: RecordBody) -> Slot:
        """Keep the slot of a record that the caller has stored: `reached`, then `settle` or `withdraw`."""
        slot = Slot(body, reserved=True)
        await self._keep(slot)
        return slot

    async def reached(self, slot: Slot) -> int:
        """The number of a reserved slot, once all before it is acknowledged: it does not change any more."""
        self._raise_failure()
        while self._kept[0] is not slot:
            await self._until_moved()
        return self._first

    def settle(self, slot: Slot) -> None:
        """The record of a reached slot is stored."""
        self._remove(slot)

    def withdraw(self, slot: Slot) -> None:
        """There will be no such record: those behind it move up."""
        self._remove(slot)
        self.last_turn_seq -= 1

    def fill(self, slot: Slot, body: RecordBody) -> None:
        """A record like others takes a reserved slot."""
        slot.reserved = False
        self._put(slot, body)
        self._changed()

    async def flush(self) -> None:
        """Return when all records are acknowledged."""
        self._raise_failure()
        while self._kept:
            await self._until_moved()

    @property
    def has_unsent(self) -> bool:
        """Whether there is something to send."""
        waits = self._failure is None and self._sent < len(self._kept)
        return waits and not self._kept[self._sent].reserved

    @property
    def next_size(self) -> int:
        """Bytes of the next record to send; 0 without one."""
        return self._kept[self._sent].size if self.has_unsent else 0

    def take(self) -> Numbered | None:
        """The next record to send, which then counts as sent."""
        if not self.has_unsent:
            return None
        self._sent += 1
        return Numbered(self._first + self._sent - 1, self._kept[self._sent - 1].body)

    def acknowledge(self, turn_seq: int) -> None:
        """The records up to this one are stored."""
        while self._kept and self._first <= turn_seq:
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
        if self.knows(turn_seq):
            self._put(self._kept[turn_seq - self._first], body)

    def knows(self, turn_seq: int) -> bool:
        """Whether this record can be sent (again)."""
        return self._first <= turn_seq <= self.last_turn_seq

    def fail(self, error: Exception) -> None:
        """Nothing more will be stored."""
        self._failure = self._failure or error
        self._moved.set()

    @property
    def _first(self) -> int:
        return self.last_turn_seq - len(self._kept) + 1

    async def _keep(self, slot: Slot) -> None:
        self._raise_failure()
        while self._kept and not self._has_room(slot.size):
            await self._until_moved()
        self.last_turn_seq += 1
        self._kept.append(slot)
        self._bytes += slot.size

    def _put(self, slot: Slot, body: RecordBody) -> None:
        self._bytes += body.ByteSize() - slot.size
        slot.body, slot.size = body, body.ByteSize()

    def _remove(self, slot: Slot) -> None:
        self._kept.remove(slot)
        self._bytes -= slot.size
        self._moved.set()
        self._changed()

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
