"""The journal's rules: which write of a holder is taken, and what it changes (F4, F9, R1, R2, S10).

Everything here happens while the session's row is locked. A refused write is raised; what
the shown token brought about before (a raised token, a LOST turn) is stored all the same.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import NamedTuple

from moorage.common.v1 import record_pb2
from moorage.common.v1.errors_pb2 import ErrorReason

from services.common.errors import Aborted, FailedPrecondition
from services.session import endings, records
from services.session.endings import Ending
from services.session.interactions import InteractionState, OpenedQuestion, Question, Settlement
from services.session.records import NewRecord, RecordKind
from services.session.sessions import resource_of
from services.session.turns import (
    EndReason,
    TurnAlreadyBegun,
    TurnEnded,
    TurnNotBegun,
    TurnNotFound,
    TurnPhase,
    TurnState,
)


class RecordConflict(Aborted):
    """record {turn_seq} of turn {turn_id} is stored with another body, as {seq} of session {session_id}"""

    reason = ErrorReason.ERROR_REASON_RECORD_CONFLICT


class RecordGap(FailedPrecondition):
    """record {turn_seq} of turn {turn_id} leaves a gap: {expected} comes next"""

    reason = ErrorReason.ERROR_REASON_RECORD_GAP


class RecordsMissing(FailedPrecondition):
    """turn {turn_id} ends with record {last_turn_seq}, but {stored} is the last one stored"""

    reason = ErrorReason.ERROR_REASON_RECORDS_MISSING


class SessionKey(NamedTuple):
    """Names a session; sessions are locked in the order of their keys."""

    project: str
    session_id: str

    @property
    def resource(self) -> str:
        """The name of its lease."""
        return resource_of(self.project, self.session_id)


@dataclass(frozen=True, slots=True)
class Append:
    """A record of a runner, with the SHA-256 of its body."""

    turn_seq: int
    kind: RecordKind
    body: bytes
    body_hash: bytes


@dataclass(slots=True)
class JournalTurn:
    """What decides whether a write to a turn is taken.

    `stopped_for` is why it will have ended once it is stopped, set while a Stop of it is open;
    `pending` are the questions that wait for an answer.
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
    admit_time: datetime
    pending: list[str]

    @property
    def stopping(self) -> bool:
        """Whether a Stop of it is open."""
        return self.stopped_for is not None


class StoredEnding(NamedTuple):
    """An ending to store, and the seq of the turn's last record."""

    turn_id: str
    ending: Ending
    last_seq: int


@dataclass(slots=True)
class SessionJournal:
    """A session whose row is locked: what is stored, and what this transaction adds.

    `known` holds seq and body hash of the runner's records that may be repeats, `grown` the
    turns that got records of their runner, `asked` those whose pending questions are others
    now, `silenced` those whose answers are not delivered any more, `raised` whether a higher
    token was shown.
    """

    key: SessionKey
    token: int
    head_seq: int
    turns: dict[str, JournalTurn] = field(default_factory=dict)
    known: dict[tuple[str, int], tuple[int, bytes]] = field(default_factory=dict)
    records: list[NewRecord] = field(default_factory=list)
    endings: list[StoredEnding] = field(default_factory=list)
    opened: list[OpenedQuestion] = field(default_factory=list)
    settlements: list[Settlement] = field(default_factory=list)
    grown: set[str] = field(default_factory=set)
    asked: set[str] = field(default_factory=set)
    silenced: set[str] = field(default_factory=set)
    raised: bool = False

    @property
    def changed(self) -> bool:
        """Whether there is anything to store."""
        return self.raised or bool(self.records or self.silenced)

    def turn(self, turn_id: str) -> JournalTurn:
        """The turn, else TurnNotFound."""
        if turn := self.turns.get(turn_id):
            return turn
        raise TurnNotFound(session_id=self.key.session_id, turn_id=turn_id)

    @property
    def in_progress(self) -> JournalTurn | None:
        """The turn that has the session's slot."""
        return next((turn for turn in self.turns.values() if turn.state.in_progress), None)

    def show(self, token: int, end_reason: EndReason) -> bool:
        """Take a token that a holder shows; False when a higher one has been seen.

        A higher one than before ends what a lower one began, LOST with this reason.
        """
        if token < self.token:
            return False
        for turn in self.turns.values():
            if turn.state.begun and (turn.token or 0) < token:
                self.abandon(turn, endings.lost(end_reason, **_circumstances(turn)))
        self.raised = self.raised or token > self.token
        self.token = token
        return True

    def begin(self, turn_id: str, token: int, attempt_id: str, runner_id: str) -> bool:
        """Begin an admitted turn; False when this attempt has begun it before."""
        turn = self.turn(turn_id)
        if turn.state is not TurnState.ADMITTED:
            self.require_begun(turn, attempt_id)
            return False
        turn.state, turn.phase, turn.token = TurnState.RUNNING, TurnPhase.PREPARING_WORKSPACE, token
        turn.attempt_id, turn.runner_id = attempt_id, runner_id
        self._add_own(turn_id, RecordKind.TURN_STARTED, records.turn_started(runner_id, token, attempt_id))
        return True

    def require_begun(self, turn: JournalTurn, attempt_id: str) -> None:
        """Refuse unless the turn is begun, by this attempt, and has not ended."""
        session_id, turn_id = self.key.session_id, turn.turn_id
        if turn.state is TurnState.ADMITTED:
            raise TurnNotBegun(session_id=session_id, turn_id=turn_id)
        if not turn.state.in_progress:
            raise TurnEnded(
                session_id=session_id, turn_id=turn_id, state=turn.state, end_reason=turn.end_reason
            )
        if turn.attempt_id != attempt_id:
            raise TurnAlreadyBegun(session_id=session_id, turn_id=turn_id, attempt_id=turn.attempt_id)

    def advance(self, turn: JournalTurn, attempt_id: str, phase: TurnPhase | None) -> bool:
        """Whether a phase is to be stored: phases only go forward, and may be told again."""
        self.require_begun(turn, attempt_id)
        if phase is None or (turn.phase is not None and phase.order < turn.phase.order):
            return False
        turn.phase = phase
        return True

    def append(self, turn_id: str, attempt_id: str, append: Append) -> int:
        """The seq of a runner's record, stored now or before."""
        turn = self.turn(turn_id)
        seq, stored_hash = self.known.get((turn_id, append.turn_seq), (0, b""))
        if seq and stored_hash == append.body_hash:
            return seq
        self.require_begun(turn, attempt_id)
        if seq:
            raise self._conflict(turn, append.turn_seq, seq)
        if append.turn_seq != turn.last_turn_seq + 1:
            raise RecordGap(turn_id=turn_id, turn_seq=append.turn_seq, expected=turn.last_turn_seq + 1)
        return self._add_of_runner(turn, append)

    def ask(
        self, turn_id: str, attempt_id: str, append: Append, question: Question, timeout: timedelta
    ) -> int:
        """The seq of a question's record, stored now or before; 0 when the turn is stopping: nothing is."""
        turn = self.turn(turn_id)
        is_new = append.turn_seq > turn.last_turn_seq
        if is_new and turn.stopping:
            self.require_begun(turn, attempt_id)
            return 0
        seq = self.append(turn_id, attempt_id, append)
        if is_new:
            self.opened.append(OpenedQuestion(turn_id, append.turn_seq, seq, question, timeout))
            self._wait_for(turn, [*turn.pending, question.interaction_id])
        return seq

    def settle(self, turn: JournalTurn, settlement: Settlement) -> None:
        """Settle a question that the turn waits for."""
        self.settlements.append(settlement)
        self._add(
            turn.turn_id,
            RecordKind.INTERACTION_CLOSED,
            records.interaction_closed(settlement),
            records.record_id(settlement.interaction_id, RecordKind.INTERACTION_CLOSED),
        )
        self._wait_for(turn, [name for name in turn.pending if name != settlement.interaction_id])

    def cancel_pending(self, turn: JournalTurn, settled_by: str) -> None:
        """Cancel what a begun turn waits for; answers that its runner does not know yet are void."""
        for interaction_id in turn.pending:
            self.settle(turn, Settlement(interaction_id, InteractionState.CANCELLED, settled_by))
        self.silenced.add(turn.turn_id)

    def finish(self, turn_id: str, attempt_id: str, last_turn_seq: int, ending: Ending) -> None:
        """Settle a turn; nothing changes when it has ended and this attempt, with this token, had begun it."""
        turn = self.turn(turn_id)
        if not turn.state.in_progress and (turn.attempt_id, turn.token) == (attempt_id, self.token):
            return
        self.require_begun(turn, attempt_id)
        if last_turn_seq > turn.last_turn_seq:
            raise RecordsMissing(turn_id=turn_id, last_turn_seq=last_turn_seq, stored=turn.last_turn_seq)
        if ending.state is TurnState.LOST:
            # What is to be said of a lost turn is the same, whoever finds out.
            lost = endings.lost(ending.end_reason, **_circumstances(turn))
            self.abandon(turn, replace(lost, runtime_after=ending.runtime_after))
        else:
            self._end(turn, _as_ordered(ending, turn.stopped_for))

    def stop(self, turn: JournalTurn, command_id: str, end_reason: EndReason) -> None:
        """Stop a turn in progress: its holder ends it, one without a holder ends here (S5)."""
        if turn.state.begun:
            turn.stopped_for = end_reason
            self.cancel_pending(turn, command_id)
        else:
            self._end(turn, _as_ordered(endings.NOT_BEGUN, end_reason))

    def abandon(self, turn: JournalTurn, ending: Ending) -> None:
        """End a turn of the session service's own accord: an error record says why."""
        if ending.error is not None:
            self._add_own(turn.turn_id, RecordKind.ERROR, records.turn_error(ending.error))
        self._end(turn, ending)

    def _end(self, turn: JournalTurn, ending: Ending) -> None:
        if turn.state.begun:
            self.cancel_pending(turn, ending.end_reason)
        turn.state, turn.end_reason = ending.state, ending.end_reason
        last_seq = self._add_own(turn.turn_id, RecordKind.TURN_ENDED, records.turn_ended(ending))
        self.endings.append(StoredEnding(turn.turn_id, ending, last_seq))

    def _wait_for(self, turn: JournalTurn, pending: list[str]) -> None:
        turn.pending = pending
        turn.state = TurnState.AWAITING_INPUT if pending else TurnState.RUNNING
        self.asked.add(turn.turn_id)

    def _conflict(self, turn: JournalTurn, turn_seq: int, seq: int) -> RecordConflict:
        conflict = RecordConflict(
            session_id=self.key.session_id, turn_id=turn.turn_id, turn_seq=turn_seq, seq=seq
        )
        self.abandon(turn, endings.conflicting(str(conflict), **conflict.metadata))
        return conflict

    def _add_of_runner(self, turn: JournalTurn, append: Append) -> int:
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

    def _add_own(self, turn_id: str, kind: RecordKind, body: record_pb2.RecordBody) -> int:
        return self._add(turn_id, kind, body, records.record_id(turn_id, kind))

    def _add(self, turn_id: str, kind: RecordKind, body: record_pb2.RecordBody, name: str) -> int:
        self.head_seq += 1
        content = body.SerializeToString(deterministic=True)
        self.records.append(NewRecord(turn_id, self.head_seq, kind, content, record_id=name))
        return self.head_seq


def _as_ordered(ending: Ending, stopped_for: EndReason | None) -> Ending:
    """The ending with the reason of the Stop: whoever carries it out does not know why it was ordered."""
    if stopped_for is not None and ending.end_reason is EndReason.USER_STOP:
        return replace(ending, end_reason=stopped_for)
    return ending


def _circumstances(turn: JournalTurn) -> dict[str, str]:
    return {
        "runner_id": turn.runner_id or "",
        "token": str(turn.token),
        "phase": str(turn.phase or ""),
        "prompt_sent": str(turn.prompt_sent).lower(),
    }
