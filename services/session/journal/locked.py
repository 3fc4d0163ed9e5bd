"""What the journal's rules judge by: turns under lock, a runner's records, and why one is refused."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

from moorage.common.v1.errors_pb2 import ErrorReason

from services.common.errors import Aborted, FailedPrecondition
from services.session.journal.endings import Ending
from services.session.records import RecordKind
from services.session.turns import EndReason, TurnPhase, TurnState


class RecordConflict(Aborted):
    """record {turn_seq} of turn {turn_id} is stored with another body, as {seq} of session {session_id}"""

    reason = ErrorReason.ERROR_REASON_RECORD_CONFLICT


class RecordGap(FailedPrecondition):
    """record {turn_seq} of turn {turn_id} leaves a gap: {expected} comes next"""

    reason = ErrorReason.ERROR_REASON_RECORD_GAP


class RecordsMissing(FailedPrecondition):
    """turn {turn_id} ends with record {last_turn_seq}, but {stored} is the last one stored"""

    reason = ErrorReason.ERROR_REASON_RECORDS_MISSING


@dataclass(frozen=True, slots=True)
class Append:
    """A record of a runner, with the SHA-256 of its body."""

    turn_seq: int
    kind: RecordKind
    body: bytes
    body_hash: bytes


@dataclass(slots=True)
class QueuePlace:
    """A place in a session's queue, lowest `order` first.

    `interrupt`: any ending of the turn before admits it. `expired`: it has waited too long.
    """

    order: int
    interrupt: bool
    expired: bool


@dataclass(slots=True)
class JournalTurn:
    """What decides whether a write to a turn is taken.

    `stopped_for` is why it will have ended once it is stopped, set while a Stop of it is open;
    `pending` are the questions that wait for an answer; `admit_time` and `place`: a turn has
    either the one or the other, unless it ended in the queue.
    """

    turn_id: str
    state: TurnState
    end_reason: EndReason | None
    phase: TurnPhase | None
    token: int | None
    attempt_id: str | None
    runner_id: str | None
    prompt_sent: bool
    last_turn_seq: int
    stopped_for: EndReason | None
    admit_time: datetime | None
    pending: list[str]
    place: QueuePlace | None = None
    # Only where it is stored in this very transaction.
    prompt: bytes | None = None

    @property
    def stopping(self) -> bool:
        """Whether a Stop of it is open."""
        return self.stopped_for is not None


class StoredEnding(NamedTuple):
    """An ending to store, and the seq of the turn's last record."""

    turn_id: str
    ending: Ending
    last_seq: int
