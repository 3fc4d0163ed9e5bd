"""A session's transcript under lock (R1): which records are stored, and those that this transaction adds."""

from __future__ import annotations

from dataclasses import dataclass, field

from moorage.common.v1 import record_pb2

from services.session import records
from services.session.journal.locked import Append, JournalTurn
from services.session.records import NewRecord, RecordKind


@dataclass(slots=True, kw_only=True)
class Transcript:
    """The records of a session whose row is locked; `head_seq` is the seq of the last one.

    `known` holds seq and body hash of the runner's records that may be repeats, `grown` the
    turns that got records of their runner.
    """

    head_seq: int
    known: dict[tuple[str, int], tuple[int, bytes]] = field(default_factory=dict)
    records: list[NewRecord] = field(default_factory=list)
    grown: set[str] = field(default_factory=set)

    def first_added(self, turn_id: str) -> int:
        """The seq of the first record that this transaction adds to a turn."""
        return next(record.seq for record in self.records if record.turn_id == turn_id)

    def add_of_runner(self, turn: JournalTurn, append: Append) -> int:
        """The seq of a runner's new record."""
        turn.last_turn_seq = append.turn_seq
        self.grown.add(turn.turn_id)
        self.head_seq += 1
        self.known[turn.turn_id, append.turn_seq] = self.head_seq, append.body_hash
        self.records.append(
            NewRecord(
                turn.turn_id,
                self.head_seq,
                append.kind,
                append.body,
                turn_seq=append.turn_seq,
                body_hash=append.body_hash,
            )
        )
        return self.head_seq

    def add_own(self, turn_id: str, kind: RecordKind, body: record_pb2.RecordBody) -> int:
        """The seq of a record that the session service makes once per turn."""
        return self.add_named(turn_id, kind, body, records.record_id(turn_id, kind))

    def add_named(self, turn_id: str, kind: RecordKind, body: record_pb2.RecordBody, name: str) -> int:
        """The seq of a record of the session service under this name."""
        self.head_seq += 1
        content = body.SerializeToString(deterministic=True)
        self.records.append(NewRecord(turn_id, self.head_seq, kind, content, record_id=name))
        return self.head_seq
