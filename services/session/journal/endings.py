"""How a turn ends: what a holder may report, and what the session service says of its own accord (F9, S10)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from moorage.common.v1 import turn_pb2

from services.common.errors import InvalidArgument
from services.session.turns import ENDINGS, EndReason, TurnState

# Found out by the session service, never by a holder.
_NOT_REPORTED: Final = frozenset({EndReason.NO_RUNNER, EndReason.QUEUE_EXPIRED, EndReason.RECORD_CONFLICT})
_REPORTED: Final = {
    TurnState.COMPLETED: ENDINGS[TurnState.COMPLETED],
    TurnState.STOPPED: ENDINGS[TurnState.STOPPED],
    TurnState.FAILED: ENDINGS[TurnState.FAILED] - _NOT_REPORTED,
    # A holder only knows what it does not run; who else lost the turn is known by its token.
    TurnState.LOST: frozenset({EndReason.EXECUTION_MISSING}),
}


@dataclass(frozen=True, slots=True)
class Ending:
    """A turn's end. `stop_method` and `runtime_after` are enum names without their prefix."""

    state: TurnState
    end_reason: EndReason
    error: turn_pb2.TurnError | None = None
    stop_reason: str = ""
    stop_method: str | None = None
    runtime_after: str | None = None
    usage: turn_pb2.TokenUsage | None = None


def check_reported(ending: Ending) -> Ending:
    """An ending as a holder may report it, else InvalidArgument."""
    if ending.state not in _REPORTED:
        raise InvalidArgument.of("state", "must be COMPLETED, STOPPED, FAILED or LOST")
    if ending.end_reason not in _REPORTED[ending.state]:
        raise InvalidArgument.of("end_reason", f"{ending.end_reason} is not reported with {ending.state}")
    _check_error(ending)
    if (ending.stop_method is None) == (ending.state is TurnState.STOPPED):
        raise InvalidArgument.of("stop_method", "is required when STOPPED, and only then")
    return ending


def _check_error(ending: Ending) -> None:
    has_code = ending.error is not None and bool(ending.error.code)
    if ending.state is TurnState.FAILED and not has_code:
        raise InvalidArgument.of("error.code", "is required when FAILED")
    if ending.state is not TurnState.FAILED and ending.error is not None:
        raise InvalidArgument.of("error", f"is not told with {ending.state}")


_LOST: Final = {
    EndReason.LEASE_LOST: "the lease of runner {runner_id} ended before the turn did",
    EndReason.TAKEN_OVER: "another holder took the session over from runner {runner_id}",
    EndReason.STOP_DEADLINE: "runner {runner_id} did not carry out its Stop in time",
    EndReason.EXECUTION_MISSING: "its holder does not run the turn that runner {runner_id} began",
}

# What the session service stops for these reasons has exceeded its bounds: whoever ended it, it failed.
_EXCEEDED: Final = {
    EndReason.MAX_DURATION: "the turn lasted longer than it may, and its runner did not end it by itself",
    EndReason.PHASE_DEADLINE: "the turn waited longer than it may, and its runner did not end it by itself",
}

# Stopped before any runner began it: nothing ran, and what is parked for the session stays parked.
NOT_BEGUN: Final = Ending(TurnState.STOPPED, EndReason.USER_STOP, stop_method="NOT_BEGUN")


def as_ordered(ending: Ending, stopped_for: EndReason | None) -> Ending:
    """The ending with the reason of the Stop: whoever carries it out does not know why it was ordered."""
    if stopped_for is None or ending.end_reason is not EndReason.USER_STOP:
        return ending
    if stopped_for not in _EXCEEDED:
        return replace(ending, end_reason=stopped_for)
    error = _error(stopped_for, _EXCEEDED[stopped_for], {})
    return replace(ending, state=TurnState.FAILED, end_reason=stopped_for, error=error, stop_method=None)


def lost(end_reason: EndReason, **metadata: str) -> Ending:
    """LOST; `metadata` says who had begun the turn and how far it was."""
    message = _LOST[end_reason].format_map(metadata)
    return Ending(TurnState.LOST, end_reason, _error(end_reason, message, metadata))


def conflicting(message: str, **metadata: str) -> Ending:
    """FAILED: the transcript cannot be trusted once a runner contradicts what it said before."""
    error = _error(EndReason.RECORD_CONFLICT, message, metadata)
    return Ending(TurnState.FAILED, EndReason.RECORD_CONFLICT, error)


def unresolved(message: str, **metadata: str) -> Ending:
    """FAILED: the session's binding cannot be read, so there is nowhere to run."""
    error = _error(EndReason.BINDING_UNRESOLVED, message, metadata)
    return Ending(TurnState.FAILED, EndReason.BINDING_UNRESOLVED, error)


def queue_expired() -> Ending:
    """FAILED: the turn waited in the queue for longer than it may."""
    error = _error(EndReason.QUEUE_EXPIRED, "the turn waited in the queue for too long", {})
    return Ending(TurnState.FAILED, EndReason.QUEUE_EXPIRED, error)


def not_begun(window: float, waiting_reason: str) -> Ending:
    """FAILED: no runner began the turn within so many seconds."""
    cause = waiting_reason or "no runner began it"
    message = f"not begun within {window:g} s: {cause}"
    metadata = {"window_seconds": f"{window:g}", "waiting_reason": waiting_reason}
    return Ending(TurnState.FAILED, EndReason.NO_RUNNER, _error(EndReason.NO_RUNNER, message, metadata))


def _error(code: EndReason, message: str, metadata: dict[str, str]) -> turn_pb2.TurnError:
    return turn_pb2.TurnError(code=code, message=message, metadata=metadata)
