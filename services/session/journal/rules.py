"""The journal's rules: which write of a holder is taken, and what it changes (F4, F9, R1, R2, S10).

Everything here happens while the session's row is locked. A refused write is raised; what
the shown token brought about before (a raised token, a LOST turn) is stored all the same.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import NamedTuple

from services.fencing.errors import StaleOwner
from services.session import queue, records
from services.session.interactions import OpenedQuestion, Question
from services.session.journal import endings
from services.session.journal.endings import Ending
from services.session.journal.locked import (
    Append,
    JournalTurn,
    RecordConflict,
    RecordGap,
    RecordsMissing,
    StoredEnding,
)
from services.session.journal.questioned import Questioned
from services.session.records import RecordKind
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


class SessionKey(NamedTuple):
    """Names a session; sessions are locked in the order of their keys."""

    project: str
    session_id: str

    @property
    def resource(self) -> str:
        """The name of its lease."""
        return resource_of(self.project, self.session_id)


@dataclass(slots=True, kw_only=True)
class SessionJournal(Questioned):
    """A session whose row is locked: what is stored, and what this transaction adds.

    Only a token above `begin_above` begins a turn. `admitted` are the turns that take the slot
    in this transaction. `raised` says whether a higher token was shown, `held` that no turn in
    the queue interrupts any more.
    """

    key: SessionKey
    token: int
    begin_above: int = 0
    is_open: bool = True
    turns: dict[str, JournalTurn] = field(default_factory=dict)
    endings: list[StoredEnding] = field(default_factory=list)
    admitted: list[str] = field(default_factory=list)
    raised: bool = False
    held: bool = False

    @property
    def changed(self) -> bool:
        """Whether there is anything to store."""
        return self.raised or self.held or bool(self.records or self.silenced or self.admitted)

    def turn(self, turn_id: str) -> JournalTurn:
        """The turn, else TurnNotFound."""
        if turn := self.turns.get(turn_id):
            return turn
        raise TurnNotFound(session_id=self.key.session_id, turn_id=turn_id)

    @property
    def in_progress(self) -> JournalTurn | None:
        """The turn that has the session's slot."""
        return next((turn for turn in self.turns.values() if turn.state.in_progress), None)

    @property
    def queue(self) -> list[JournalTurn]:
        """The turns that wait for the slot, the next one first."""
        return queue.in_order(self.turns.values())

    def admit(self, turn: JournalTurn) -> None:
        """Give the session's slot, which is free, to a turn of the queue."""
        turn.state, turn.phase, turn.place = TurnState.ADMITTED, TurnPhase.WAITING_FOR_RUNNER, None
        self.admitted.append(turn.turn_id)

    def hold_queue(self) -> None:
        """Let the queue wait for COMPLETED or the next StartTurn: nothing in it interrupts any more."""
        for turn in self.queue:
            if turn.place is not None and turn.place.interrupt:
                turn.place.interrupt, self.held = False, True

    def expire_queue(self) -> None:
        """End what has waited in the queue for too long."""
        for turn in self.queue:
            if turn.place is not None and turn.place.expired:
                self.abandon(turn, endings.queue_expired())

    def clear_queue(self, end_reason: EndReason) -> None:
        """End whatever waits in the queue, STOPPED."""
        for turn in self.queue:
            self._end(turn, endings.as_ordered(endings.NOT_BEGUN, end_reason))

    def show(self, token: int, end_reason: EndReason) -> bool:
        """Take a token that a holder shows; False when a higher one has been seen.

        A higher one than before ends what a lower one began, LOST with this reason; or with that
        of its overdue Stop, which whoever marked the session for it did not live to write.
        """
        if token < self.token:
            return False
        for turn in self.turns.values():
            if turn.state.begun and (turn.token or 0) < token:
                self.abandon(turn, endings.lost(self._loss(turn, end_reason), **_circumstances(turn)))
        self.raised = self.raised or token > self.token
        self.token = token
        return True

    def begin(self, turn_id: str, token: int, attempt_id: str, runner_id: str) -> bool:
        """Begin an admitted turn; False when this attempt has begun it before.

        StaleOwner under a token that is about to be taken over.
        """
        turn = self.turn(turn_id)
        if turn.state is not TurnState.ADMITTED:
            self.require_begun(turn, attempt_id)
            return False
        if turn_id in self.admitted:
            # The slot is its own only when this transaction is stored.
            raise TurnNotBegun(session_id=self.key.session_id, turn_id=turn_id)
        if token <= self.begin_above:
            raise StaleOwner(resource=self.key.resource, token=token, highest=self.begin_above)
        turn.state, turn.phase, turn.token = TurnState.RUNNING, TurnPhase.PREPARING_WORKSPACE, token
        turn.attempt_id, turn.runner_id = attempt_id, runner_id
        self.add_own(turn_id, RecordKind.TURN_STARTED, records.turn_started(runner_id, token, attempt_id))
        return True

    def require_begun(self, turn: JournalTurn, attempt_id: str) -> None:
        """Refuse unless the turn is begun, by this attempt, and has not ended."""
        session_id, turn_id = self.key.session_id, turn.turn_id
        if turn.state in (TurnState.QUEUED, TurnState.ADMITTED):
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
        return self.add_of_runner(turn, append)

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
            self.wait_for(turn, [*turn.pending, question.interaction_id])
        return seq

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
            self._end(turn, endings.as_ordered(ending, turn.stopped_for))

    def stop(self, turn: JournalTurn, command_id: str, end_reason: EndReason) -> None:
        """Stop a turn: its holder ends it, one without a holder ends here (S5).

        What a user stopped is followed by nothing that interrupted it (T2). Of several Stops the
        first one says why the turn ended.
        """
        if end_reason is EndReason.USER_STOP and turn.state.in_progress:
            self.hold_queue()
        if turn.stopping:
            return
        if turn.state.begun:
            turn.stopped_for = end_reason
            self.cancel_pending(turn, command_id)
        else:
            self._end(turn, endings.as_ordered(endings.NOT_BEGUN, end_reason))

    def abandon(self, turn: JournalTurn, ending: Ending) -> None:
        """End a turn of the session service's own accord: an error record says why."""
        if ending.error is not None:
            self.add_own(turn.turn_id, RecordKind.ERROR, records.turn_error(ending.error))
        self._end(turn, ending)

    def _loss(self, turn: JournalTurn, end_reason: EndReason) -> EndReason:
        is_marked = turn.stopping and (turn.token or 0) <= self.begin_above
        return EndReason.STOP_DEADLINE if is_marked and end_reason is EndReason.LEASE_LOST else end_reason

    def _end(self, turn: JournalTurn, ending: Ending) -> None:
        if turn.state.begun:
            self.cancel_pending(turn, ending.end_reason)
        had_slot = turn.state.in_progress
        turn.state, turn.end_reason, turn.place = ending.state, ending.end_reason, None
        last_seq = self.add_own(turn.turn_id, RecordKind.TURN_ENDED, records.turn_ended(ending))
        self.endings.append(StoredEnding(turn.turn_id, ending, last_seq))
        if had_slot:
            self._pass_on(ending.state)

    def _pass_on(self, ended: TurnState) -> None:
        self.expire_queue()
        head = queue.next_up(self.queue, ended)
        if head is not None and self.is_open:
            self.admit(head)

    def _conflict(self, turn: JournalTurn, turn_seq: int, seq: int) -> RecordConflict:
        conflict = RecordConflict(
            session_id=self.key.session_id, turn_id=turn.turn_id, turn_seq=turn_seq, seq=seq
        )
        self.abandon(turn, endings.conflicting(str(conflict), **conflict.metadata))
        return conflict


def _circumstances(turn: JournalTurn) -> dict[str, str]:
    return {
        "runner_id": turn.runner_id or "",
        "token": str(turn.token),
        "phase": str(turn.phase or ""),
        "prompt_sent": str(turn.prompt_sent).lower(),
    }
