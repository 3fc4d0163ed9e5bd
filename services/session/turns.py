"""Turns: what is stored about one, its states, and why a call about one is refused."""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from types import MappingProxyType
from typing import Any, Final

from moorage.common.v1.errors_pb2 import ErrorReason

from services.common.errors import Aborted, AlreadyExists, FailedPrecondition, NotFound


class TurnState(enum.StrEnum):
    """QUEUED -> ADMITTED -> RUNNING <-> AWAITING_INPUT -> COMPLETED | STOPPED | FAILED | LOST.

    A turn starts as QUEUED or ADMITTED; both also end at once.
    """

    QUEUED = "QUEUED"
    ADMITTED = "ADMITTED"
    RUNNING = "RUNNING"
    AWAITING_INPUT = "AWAITING_INPUT"
    COMPLETED = "COMPLETED"
    STOPPED = "STOPPED"
    FAILED = "FAILED"
    LOST = "LOST"

    @property
    def in_progress(self) -> bool:
        """Whether a turn in this state has its session's one slot."""
        return self is TurnState.ADMITTED or self.begun

    @property
    def begun(self) -> bool:
        """Whether a holder drives a turn in this state: it is ended with a token only."""
        return self in (TurnState.RUNNING, TurnState.AWAITING_INPUT)

    @property
    def ended(self) -> bool:
        """Whether a turn in this state never changes any more."""
        return self in ENDINGS


class TurnPhase(enum.StrEnum):
    """How far a turn in progress is, in this order."""

    WAITING_FOR_RUNNER = "WAITING_FOR_RUNNER"
    PREPARING_WORKSPACE = "PREPARING_WORKSPACE"
    STARTING_AGENT = "STARTING_AGENT"
    LOADING_SESSION = "LOADING_SESSION"
    PROMPTED = "PROMPTED"

    @property
    def order(self) -> int:
        """Its place; phases only go forward."""
        return list(TurnPhase).index(self)


class EndReason(enum.StrEnum):
    """Why a turn ended; `ENDINGS` says in which state."""

    AGENT_ENDED = "AGENT_ENDED"
    USER_STOP = "USER_STOP"
    INTERRUPTED = "INTERRUPTED"
    DRAINED = "DRAINED"
    CLOSED = "CLOSED"
    NO_RUNNER = "NO_RUNNER"
    PREPARE_FAILED = "PREPARE_FAILED"
    AGENT_START_FAILED = "AGENT_START_FAILED"
    AGENT_EXITED = "AGENT_EXITED"
    AGENT_PROTOCOL_ERROR = "AGENT_PROTOCOL_ERROR"
    AGENT_AUTH_REQUIRED = "AGENT_AUTH_REQUIRED"
    WORKSPACE_LOST = "WORKSPACE_LOST"
    OUT_OF_MEMORY = "OUT_OF_MEMORY"
    BINDING_UNRESOLVED = "BINDING_UNRESOLVED"
    PHASE_DEADLINE = "PHASE_DEADLINE"
    QUEUE_EXPIRED = "QUEUE_EXPIRED"
    MAX_DURATION = "MAX_DURATION"
    MAX_SILENCE = "MAX_SILENCE"
    MAX_TOOL_CALLS = "MAX_TOOL_CALLS"
    LEASE_LOST = "LEASE_LOST"
    EXECUTION_MISSING = "EXECUTION_MISSING"
    STOP_DEADLINE = "STOP_DEADLINE"
    TAKEN_OVER = "TAKEN_OVER"
    RECORD_CONFLICT = "RECORD_CONFLICT"


_STOPPED: Final = frozenset({EndReason.USER_STOP, EndReason.INTERRUPTED, EndReason.DRAINED, EndReason.CLOSED})
_LOST: Final = frozenset(
    {EndReason.LEASE_LOST, EndReason.EXECUTION_MISSING, EndReason.STOP_DEADLINE, EndReason.TAKEN_OVER}
)
_COMPLETED: Final = frozenset({EndReason.AGENT_ENDED})

ENDINGS: Final[Mapping[TurnState, frozenset[EndReason]]] = MappingProxyType(
    {
        TurnState.COMPLETED: _COMPLETED,
        TurnState.STOPPED: _STOPPED,
        TurnState.FAILED: frozenset(EndReason) - _COMPLETED - _STOPPED - _LOST,
        TurnState.LOST: _LOST,
    }
)


class IfBusy(enum.StrEnum):
    """What becomes of a turn when another one is in progress (T2)."""

    REJECT = "REJECT"
    ENQUEUE = "ENQUEUE"
    INTERRUPT = "INTERRUPT"


@dataclass(frozen=True, slots=True)
class NewTurn:
    """What StartTurn stores; `prompt` is a serialised moorage.common.v1.UserMessage."""

    project: str
    session_id: str
    turn_id: str
    prompt: bytes
    traceparent: str
    if_busy: IfBusy = IfBusy.REJECT


@dataclass(frozen=True, slots=True)
class Turn:
    """A turn as it is stored. Serialised messages are bytes, absent ones None.

    `prompt` is a moorage.common.v1.UserMessage, `observation` a
    moorage.session.v1.RunObservation, `metadata` a moorage.common.v1.RunMetadata, `error`
    a TurnError, `usage` a TokenUsage. `admit_time` is when it took the session's slot; `token`,
    `attempt_id`, `runner_id` are set by begin. `queue_position` is 1 for the head of the queue,
    0 outside of it.
    """

    project: str
    session_id: str
    turn_id: str
    number: int
    state: TurnState
    end_reason: EndReason | None
    phase: TurnPhase | None
    waiting_reason: str
    phase_deadline: datetime | None
    prompt: bytes
    traceparent: str
    dispatch_time: datetime
    dispatch_attempts: int
    dispatch_endpoint: str
    token: int | None
    attempt_id: str | None
    runner_id: str | None
    prompt_sent: bool
    native_session_id: str
    observation: bytes
    metadata: bytes | None
    previous_turn_id: str
    last_turn_seq: int
    first_seq: int
    last_seq: int
    stop_reason: str
    stop_method: str | None
    runtime_after: str | None
    error: bytes | None
    usage: bytes | None
    stop_deadline: datetime | None
    pending_interaction_ids: Sequence[str]
    create_time: datetime
    admit_time: datetime | None
    begin_time: datetime | None
    end_time: datetime | None
    queue_expire_time: datetime | None
    queue_position: int = 0

    @property
    def stopping(self) -> bool:
        """Whether a Stop of it is open."""
        return self.stop_deadline is not None


@dataclass(frozen=True, slots=True)
class QueuedTurn:
    """A turn in the queue, as clients see it."""

    turn_id: str
    create_time: datetime
    expire_time: datetime
    interrupt: bool


class TurnNotFound(NotFound):
    """session {session_id} has no turn {turn_id}"""

    reason = ErrorReason.ERROR_REASON_TURN_NOT_FOUND


class TurnInProgress(FailedPrecondition):
    """turn {turn_id} of session {session_id} is in progress: {state}, {phase}"""

    reason = ErrorReason.ERROR_REASON_TURN_IN_PROGRESS


class TurnWithdrawn(Aborted):
    """a Stop withdrew the turn {turn_id} of session {session_id} before it was started"""

    reason = ErrorReason.ERROR_REASON_TURN_WITHDRAWN


class TurnAlreadyExists(AlreadyExists):
    """session {session_id} has a turn {turn_id} already"""

    reason = ErrorReason.ERROR_REASON_TURN_ALREADY_EXISTS


class TurnEnded(FailedPrecondition):
    """turn {turn_id} of session {session_id} has ended: {state}, {end_reason}"""

    reason = ErrorReason.ERROR_REASON_TURN_ENDED


class TurnAlreadyBegun(Aborted):
    """turn {turn_id} of session {session_id} was begun by the attempt {attempt_id}"""

    reason = ErrorReason.ERROR_REASON_TURN_ALREADY_BEGUN


class TurnNotBegun(FailedPrecondition):
    """turn {turn_id} of session {session_id} has not been begun"""

    reason = ErrorReason.ERROR_REASON_TURN_NOT_BEGUN


def in_progress(turn: Turn) -> TurnInProgress:
    """The refusal that names the turn in progress, and a question that waits for an answer."""
    names: dict[str, Any] = {"session_id": turn.session_id, "turn_id": turn.turn_id}
    if turn.pending_interaction_ids:
        names["interaction_id"] = turn.pending_interaction_ids[0]
    return TurnInProgress(**names, state=turn.state, phase=turn.phase)
