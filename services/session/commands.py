"""Commands: durable orders about turns. What a Stop hits (S4), and how it is settled (S10)."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from types import MappingProxyType
from typing import Final, NamedTuple

from moorage.common.v1.errors_pb2 import ErrorReason

from services.common.errors import FailedPrecondition, NotFound
from services.session.journal.endings import Ending
from services.session.journal.locked import JournalTurn
from services.session.journal.rules import SessionJournal, SessionKey
from services.session.turns import EndReason, TurnState


class CommandState(enum.StrEnum):
    """PENDING -> APPLIED | OBSOLETE; CLAIMED is a PENDING one that a runner has."""

    PENDING = "PENDING"
    CLAIMED = "CLAIMED"
    APPLIED = "APPLIED"
    OBSOLETE = "OBSOLETE"


class CommandOutcome(enum.StrEnum):
    """How a command was settled; `state` says in which state."""

    STOPPED = "STOPPED"
    LOST = "LOST"
    WITHDRAWN = "WITHDRAWN"
    NOT_RUNNING = "NOT_RUNNING"
    FAILED = "FAILED"
    SUPERSEDED_BY_NEWER_TURN = "SUPERSEDED_BY_NEWER_TURN"

    @property
    def state(self) -> CommandState:
        """APPLIED when the command brought something about, else OBSOLETE."""
        return CommandState.APPLIED if self in _APPLIED else CommandState.OBSOLETE


_APPLIED: Final = frozenset({CommandOutcome.STOPPED, CommandOutcome.LOST, CommandOutcome.WITHDRAWN})

_SETTLED_BY: Final[Mapping[TurnState, CommandOutcome]] = MappingProxyType(
    {
        TurnState.STOPPED: CommandOutcome.STOPPED,
        TurnState.LOST: CommandOutcome.LOST,
        TurnState.COMPLETED: CommandOutcome.NOT_RUNNING,
        TurnState.FAILED: CommandOutcome.FAILED,
    }
)


@dataclass(frozen=True, slots=True)
class Command:
    """A command as it is stored. `turn_id` is None when there was no turn to stop.

    `stop_method` and `runtime_after` are enum names without their prefix, told by the ending.
    """

    project: str
    session_id: str
    command_id: str
    turn_id: str | None
    kind: str
    state: CommandState
    outcome: CommandOutcome | None
    stop_method: str | None
    runtime_after: str | None
    deliveries: int
    deadline: datetime | None
    create_time: datetime
    settle_time: datetime | None

    @property
    def settled(self) -> bool:
        """Whether it has its outcome, which never changes."""
        return self.settle_time is not None


@dataclass(frozen=True, slots=True)
class StopDraft:
    """What StopTurn asks for. `expected_turn_id` is empty for an unnamed Stop.

    `entered` is when the call arrived, on the boot clock of this process; `end_reason` is why
    the turn will have ended when it is stopped.
    """

    key: SessionKey
    command_id: str
    expected_turn_id: str
    traceparent: str
    entered: float
    end_reason: EndReason = EndReason.USER_STOP


@dataclass(frozen=True, slots=True)
class StopClaim:
    """An open Stop that this replica alone delivers, for a short time; `attempts` counts its claims.

    `attempt_id` is the attempt that began the turn. `new_for` is the holder that did, when the
    Stop was stored this very moment.
    """

    key: SessionKey
    command_id: str
    turn_id: str
    attempt_id: str
    traceparent: str
    attempts: int
    new_for: str = ""


class NothingToStop(NamedTuple):
    """What a Stop that ends no turn is about, and what becomes of it at once."""

    turn_id: str | None
    outcome: CommandOutcome


class CommandNotFound(NotFound):
    """session {session_id} has no command {command_id}"""

    reason = ErrorReason.ERROR_REASON_COMMAND_NOT_FOUND


class TurnMismatch(FailedPrecondition):
    """turn {expected_turn_id} of session {session_id} has ended; turn {turn_id} is in progress"""

    reason = ErrorReason.ERROR_REASON_TURN_MISMATCH


def target_of(
    journal: SessionJournal, expected_turn_id: str, arrival: datetime | None
) -> JournalTurn | NothingToStop:
    """What a Stop hits in the locked session; raises TurnMismatch. Only of an unnamed one the arrival counts.

    A named one never hits another turn, an unnamed one none in the queue and none that took the
    slot after its arrival.
    """
    busy = journal.in_progress
    if not expected_turn_id:
        return _unnamed(busy, arrival)
    named = journal.turns.get(expected_turn_id)
    if named is not None and not named.state.ended:
        return named
    if named is None:
        return NothingToStop(expected_turn_id, CommandOutcome.WITHDRAWN)
    if busy is not None:
        raise TurnMismatch(
            session_id=journal.key.session_id, expected_turn_id=expected_turn_id, turn_id=busy.turn_id
        )
    return NothingToStop(expected_turn_id, CommandOutcome.NOT_RUNNING)


def outcome_of(ending: Ending) -> CommandOutcome:
    """What the end of a turn makes of the open command about it."""
    return _SETTLED_BY[ending.state]


def _unnamed(busy: JournalTurn | None, arrival: datetime | None) -> JournalTurn | NothingToStop:
    if busy is None:
        return NothingToStop(None, CommandOutcome.NOT_RUNNING)
    if busy.admit_time and arrival and busy.admit_time > arrival:
        return NothingToStop(None, CommandOutcome.SUPERSEDED_BY_NEWER_TURN)
    return busy
