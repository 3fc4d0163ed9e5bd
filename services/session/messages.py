"""The transcript with its messages in one piece: what the view MESSAGES shows."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Final, TypeAlias

from moorage.common.v1 import record_pb2

from services.session.records import Record, RecordKind, RecordPage

# A longer message is shown in parts of about this size, cut where pieces meet; a page has room for one.
MAX_MESSAGE: Final = 256 * 1024
_IN_PIECES: Final = frozenset({RecordKind.AGENT_MESSAGE, RecordKind.THOUGHT})

ReadPage: TypeAlias = Callable[[int], Awaitable[RecordPage]]


@dataclass(frozen=True, slots=True)
class _Piece:
    """A piece of text; those of one `message` belong together."""

    message: tuple[str, str, str]
    text: str


class Merger:
    """Takes records in the order of their seq; gives those that nothing can be added to any more.

    How a message is cut depends on nothing but its own pieces: whoever begins to read where a
    given record ended gets the same ones.
    """

    def __init__(self, longest: int = MAX_MESSAGE) -> None:
        """`longest`: bytes of a message that is not cut."""
        self._longest = longest
        self._open: list[tuple[Record, _Piece]] = []
        self._size = 0

    def add(self, record: Record) -> Iterator[Record]:
        """Take the next record; gives what is complete by that."""
        piece = _piece_of(record)
        if piece is None:
            yield from self.end()
            yield record
            return
        if not self._joins(piece, len(record.body)):
            yield from self.end()
        self._open.append((record, piece))
        self._size += len(record.body)

    def end(self) -> Iterator[Record]:
        """Give what is open: nothing is added to it."""
        if self._open:
            yield _merged(self._open)
        self._open, self._size = [], 0

    def _joins(self, piece: _Piece, size: int) -> bool:
        same = bool(self._open) and self._open[-1][1].message == piece.message
        return same and self._size + size <= self._longest


def merge(records: Iterable[Record], longest: int = MAX_MESSAGE) -> list[Record]:
    """The records with the pieces of each message that stand next to each other as one.

    It has seq, turn_seq and time of the last of them. Only text is put together, and only up
    to `longest` bytes.
    """
    merger = Merger(longest)
    merged = [complete for record in records for complete in merger.add(record)]
    return [*merged, *merger.end()]


def is_continued(record: Record, later: Record) -> bool:
    """Whether both are pieces of one message."""
    piece, next_piece = _piece_of(record), _piece_of(later)
    return piece is not None and next_piece is not None and piece.message == next_piece.message


async def read_messages(read: ReadPage, after_seq: int, *, limit: int, size: int) -> RecordPage:
    """The merged records after a seq, at most `limit` and about `size` bytes, at least one if there is any.

    `read` gives pages of the transcript in pieces. However a transcript is read in pages, the
    same merged records come out.
    """
    merger, found = Merger(), list[Record]()
    while True:
        page = await read(after_seq)
        for record in page.records:
            found.extend(merger.add(record))
        at_end = not page.records or page.records[-1].seq >= page.head_seq
        if at_end:
            found.extend(merger.end())
        fitting = _fitting(found, limit, size)
        if at_end or len(fitting) == limit or len(fitting) < len(found):
            return RecordPage(tuple(fitting), page.head_seq)
        after_seq = page.records[-1].seq


def _fitting(records: Iterable[Record], limit: int, room: int) -> list[Record]:
    fitting, size = list[Record](), 0
    for record in records:
        size += len(record.body)
        if len(fitting) == limit or (fitting and size > room):
            break
        fitting.append(record)
    return fitting


def _merged(pieces: list[tuple[Record, _Piece]]) -> Record:
    last, _ = pieces[-1]
    if len(pieces) == 1:
        return last
    body = record_pb2.RecordBody.FromString(last.body)
    _pieces_of(body).content.text.text = "".join(piece.text for _, piece in pieces)
    return replace(last, body=body.SerializeToString(deterministic=True))


def _piece_of(record: Record) -> _Piece | None:
    """The text of a message's piece; None of any other record."""
    if record.kind not in _IN_PIECES:
        return None
    pieces = _pieces_of(record_pb2.RecordBody.FromString(record.body))
    if not pieces.message_id or pieces.content.WhichOneof("block") != "text":
        return None
    return _Piece((record.turn_id, record.kind, pieces.message_id), pieces.content.text.text)


def _pieces_of(body: record_pb2.RecordBody) -> record_pb2.AgentMessage | record_pb2.Thought:
    return body.thought if body.HasField("thought") else body.agent_message
