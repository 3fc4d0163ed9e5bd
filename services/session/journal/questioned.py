"""Questions of a session under lock (T6): those that this transaction opens and settles."""

from __future__ import annotations

from dataclasses import dataclass, field

from services.session import records
from services.session.interactions import InteractionState, OpenedQuestion, Settlement
from services.session.journal.locked import JournalTurn
from services.session.journal.transcript import Transcript
from services.session.records import RecordKind
from services.session.turns import TurnState


@dataclass(slots=True, kw_only=True)
class Questioned(Transcript):
    """A transcript, and what its turns wait for.

    `asked` are the turns whose pending questions are others now, `silenced` those whose
    answers are not delivered any more.
    """

    opened: list[OpenedQuestion] = field(default_factory=list)
    settlements: list[Settlement] = field(default_factory=list)
    asked: set[str] = field(default_factory=set)
    silenced: set[str] = field(default_factory=set)

    def settle(self, turn: JournalTurn, settlement: Settlement) -> None:
        """Settle a question that the turn waits for."""
        self.settlements.append(settlement)
        self.add_named(
            turn.turn_id,
            RecordKind.INTERACTION_CLOSED,
            records.interaction_closed(settlement),
            records.record_id(settlement.interaction_id, RecordKind.INTERACTION_CLOSED),
        )
        self.wait_for(turn, [name for name in turn.pending if name != settlement.interaction_id])

    def cancel_pending(self, turn: JournalTurn, settled_by: str) -> None:
        """Cancel what a begun turn waits for; answers that its runner does not know yet are void."""
        for interaction_id in turn.pending:
            self.settle(turn, Settlement(interaction_id, InteractionState.CANCELLED, settled_by))
        self.silenced.add(turn.turn_id)

    def wait_for(self, turn: JournalTurn, pending: list[str]) -> None:
        """Let a begun turn wait for these questions, or go on when there is none."""
        turn.pending = pending
        turn.state = TurnState.AWAITING_INPUT if pending else TurnState.RUNNING
        self.asked.add(turn.turn_id)
