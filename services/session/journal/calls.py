"""What holders ask of the journal, checked and in the domain's words."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from moorage.common.v1.grant_pb2 import Grant
from moorage.common.v1.turn_pb2 import RunMetadata
from moorage.session.v1.journal_pb2 import RunObservation

from services.session.interactions import Question
from services.session.journal.endings import Ending
from services.session.journal.locked import Append
from services.session.journal.rules import SessionKey
from services.session.sessions import Session
from services.session.turns import Turn, TurnPhase


@dataclass(frozen=True, slots=True)
class TurnCall:
    """Which turn a write is about, which try of it, and the grant that it shows."""

    key: SessionKey
    turn_id: str
    attempt_id: str
    grant: Grant


@dataclass(frozen=True, slots=True)
class BeginCall:
    """The begin of a turn, with what is known then; `prompt_sent` when its prompt may go out next."""

    turn: TurnCall
    prompt_sent: bool
    observation: RunObservation


@dataclass(frozen=True, slots=True)
class ProgressCall:
    """How far a turn is; `phase` None leaves phase, waiting reason and deadline."""

    turn: TurnCall
    phase: TurnPhase | None
    waiting_reason: str
    phase_timeout: timedelta | None
    prompt_sent: bool
    observation: RunObservation


@dataclass(frozen=True, slots=True)
class AppendCall:
    """A record to store."""

    turn: TurnCall
    append: Append


@dataclass(frozen=True, slots=True)
class FinishCall:
    """A turn's end, as its holder reports it."""

    turn: TurnCall
    last_turn_seq: int
    ending: Ending


@dataclass(frozen=True, slots=True)
class OpenCall:
    """A question of the agent, and its record."""

    turn: TurnCall
    append: Append
    question: Question


@dataclass(frozen=True, slots=True)
class HistoryCall:
    """What was said before a turn, in at most so many bytes."""

    key: SessionKey
    grant: Grant
    before_turn_id: str
    max_bytes: int


@dataclass(frozen=True, slots=True)
class Begun:
    """A begun turn; policy and bounds are those that it was begun with.

    `native_session_id` is the newest one of an earlier turn of the session, empty without one;
    a question waits for its answer for `interaction_timeout`. `setup_untold`: the workspace was
    made for the session, and no record tells how its set-up command ended, should it have one.
    """

    session: Session
    turn: Turn
    metadata: RunMetadata
    native_session_id: str
    interaction_timeout: timedelta
    setup_untold: bool
