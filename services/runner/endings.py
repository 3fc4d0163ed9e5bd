"""How a turn ends, and the exceptions that end it. Each carries all that the turn will say."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from moorage.common.v1.errors_pb2 import ErrorReason
from moorage.common.v1.turn_pb2 import (
    EndReason,
    RuntimeAfter,
    StopMethod,
    TokenUsage,
    TurnError,
    TurnState,
)

from services.common.errors import (
    Aborted,
    Cancelled,
    DeadlineExceeded,
    FailedPrecondition,
    Internal,
    MoorageError,
    NotFound,
    ResourceExhausted,
    Unavailable,
    as_text,
)
from services.runner.texts import storable

# Refusals which say that what is asked for does not fit what is stored.
_STATE: Final = (NotFound, FailedPrecondition, Aborted)
# Of these nobody can tell whether the call took effect, and another try may succeed.
UNCERTAIN: Final = (Unavailable, DeadlineExceeded, Cancelled, ResourceExhausted, Internal)
# Refusals which say that somebody else may drive the session, or will.
NOT_OURS: Final = frozenset(
    (
        ErrorReason.ERROR_REASON_MISSING_OWNER,
        ErrorReason.ERROR_REASON_LEASE_EXPIRED,
        ErrorReason.ERROR_REASON_STALE_OWNER,
    )
)
_PREFIX: Final = "END_REASON_"


@dataclass(frozen=True, slots=True)
class Ending:
    """What FinishTurn says of a turn."""

    state: TurnState.ValueType
    reason: EndReason.ValueType
    error: TurnError | None = None
    stop_reason: str = ""
    stop_method: StopMethod.ValueType = StopMethod.STOP_METHOD_UNSPECIFIED
    runtime_after: RuntimeAfter.ValueType = RuntimeAfter.RUNTIME_AFTER_UNSPECIFIED
    usage: TokenUsage | None = None

    @property
    def reason_name(self) -> str:
        """The reason without its prefix."""
        return EndReason.Name(self.reason).removeprefix(_PREFIX)


class TurnAbandoned(Exception):
    """The turn is not this runner's any more: nothing may be written for it (F7)."""

    @classmethod
    def after(cls, error: MoorageError) -> TurnAbandoned:
        """Because of a refusal of the journal or of a workspace."""
        return cls(f"{error.reason_name}: {error}")


class TurnRefused(Exception):
    """The turn cannot be begun, because of its state or its session's; nothing has happened (T4)."""


class TurnStopped(Exception):
    """Somebody wants the turn to end; it ends STOPPED."""

    def __init__(self, reason: EndReason.ValueType, *, command_id: str = "", traceparent: str = "") -> None:
        """`reason` is one of those that belong to STOPPED; a Stop has a command and a trace."""
        super().__init__(EndReason.Name(reason))
        self.reason = reason
        self.command_id = command_id
        self.traceparent = traceparent

    @property
    def reason_name(self) -> str:
        """The reason without its prefix."""
        return EndReason.Name(self.reason).removeprefix(_PREFIX)


class TurnFailed(Exception):
    """The turn cannot be carried out; it ends FAILED."""

    def __init__(
        self, reason: EndReason.ValueType, message: str, *, code: str = "", **metadata: object
    ) -> None:
        """`code` is for programs and by default the reason's name; empty metadata are left out."""
        super().__init__(storable(message))
        self.reason = reason
        self.code = code or EndReason.Name(reason).removeprefix(_PREFIX)
        self.metadata = {key: text for key, value in metadata.items() if (text := storable(as_text(value)))}

    @classmethod
    def because(cls, reason: EndReason.ValueType, error: MoorageError, **metadata: object) -> TurnFailed:
        """A refusal of another service ends the turn; its reason becomes the code."""
        return cls(reason, str(error), code=error.reason_name, **{**error.metadata, **metadata})

    def ending(self) -> Ending:
        """As FinishTurn says it."""
        error = TurnError(code=self.code, message=str(self), metadata=self.metadata)
        return Ending(TurnState.TURN_STATE_FAILED, self.reason, error=error)


def refusal(error: MoorageError) -> TurnRefused | TurnAbandoned:
    """What it means that a turn was not begun: its state forbids it, or the session is not this holder's."""
    if isinstance(error, _STATE) and error.reason not in NOT_OURS:
        return TurnRefused(f"{error.reason_name}: {error}")
    return TurnAbandoned.after(error)


def missing() -> Ending:
    """Of a turn that was begun under this lease and is not run: nobody can tell how far it came (F9)."""
    return Ending(
        TurnState.TURN_STATE_LOST,
        EndReason.END_REASON_EXECUTION_MISSING,
        runtime_after=RuntimeAfter.RUNTIME_AFTER_ENDED,
    )
