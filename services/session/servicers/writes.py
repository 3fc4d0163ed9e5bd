"""The holder's requests, checked and in the domain's words."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any, Final, TypeAlias, TypeVar

from google.protobuf.message import Message
from moorage.common.v1 import record_pb2, turn_pb2
from moorage.session.v1 import journal_pb2

from services.common.errors import InvalidArgument
from services.common.pages import page_size
from services.common.validation import (
    check_id,
    check_project,
    check_range,
    check_size,
    check_text,
    seconds_of,
)
from services.session.history import DEFAULT_BYTES, MOST_BYTES
from services.session.interactions import check_question
from services.session.journal.calls import (
    AppendCall,
    BeginCall,
    FinishCall,
    HistoryCall,
    OpenCall,
    ProgressCall,
    TurnCall,
)
from services.session.journal.endings import Ending, check_reported
from services.session.journal.locked import Append
from services.session.journal.rules import SessionKey
from services.session.records import RecordKind, check_body, hash_of
from services.session.turns import EndReason, TurnPhase, TurnState

TurnRequest: TypeAlias = (
    journal_pb2.BeginTurnRequest
    | journal_pb2.ReportProgressRequest
    | journal_pb2.RecordAppend
    | journal_pb2.OpenInteractionRequest
    | journal_pb2.FinishTurnRequest
)
T = TypeVar("T")

_MAX_TEXT: Final = 4 * 1024
_MAX_MESSAGE: Final = 64 * 1024
_LONGEST_PHASE: Final = 30 * 24 * 3600.0


def turn_call(request: TurnRequest) -> TurnCall:
    """The names in a write and the grant that it shows, which is judged later."""
    return TurnCall(
        SessionKey(check_project(request.project), check_id("session_id", request.session_id)),
        check_id("turn_id", request.turn_id),
        check_id("attempt_id", request.attempt_id),
        request.grant,
    )


def begin_call(request: journal_pb2.BeginTurnRequest) -> BeginCall:
    """BeginTurn."""
    _check_observation(request.observation)
    return BeginCall(turn_call(request), request.prompt_sent, request.observation)


def progress_call(request: journal_pb2.ReportProgressRequest) -> ProgressCall:
    """ReportProgress."""
    _check_observation(request.observation)
    return ProgressCall(
        turn=turn_call(request),
        phase=_member("phase", TurnPhase, turn_pb2.TurnPhase.Name, request.phase, "TURN_PHASE_"),
        waiting_reason=_text("waiting_reason", request.waiting_reason),
        phase_timeout=_timeout(request) if request.HasField("phase_timeout") else None,
        prompt_sent=request.prompt_sent,
        observation=request.observation,
    )


def append_call(request: journal_pb2.RecordAppend) -> AppendCall:
    """One record of AppendRecords."""
    call = turn_call(request)
    if request.turn_seq < 1:
        raise InvalidArgument.of("turn_seq", "must be 1 or more")
    kind, body = check_body("body", request.body)
    return AppendCall(call, Append(request.turn_seq, kind, body, hash_of(body)))


def open_call(request: journal_pb2.OpenInteractionRequest) -> OpenCall:
    """OpenInteraction."""
    call = turn_call(request)
    if request.turn_seq < 1:
        raise InvalidArgument.of("turn_seq", "must be 1 or more")
    question = check_question("interaction", request.interaction)
    record = record_pb2.RecordBody(interaction_opened=request.interaction)
    body = record.SerializeToString(deterministic=True)
    append = Append(request.turn_seq, RecordKind.INTERACTION_OPENED, body, hash_of(body))
    return OpenCall(call, append, question)


def history_call(request: journal_pb2.ListHistoryRequest) -> HistoryCall:
    """ListHistory."""
    return HistoryCall(
        SessionKey(check_project(request.project), check_id("session_id", request.session_id)),
        request.grant,
        check_id("before_turn_id", request.before_turn_id),
        page_size("max_bytes", request.max_bytes, DEFAULT_BYTES, MOST_BYTES),
    )


def claimed_session(request: journal_pb2.ClaimSessionRequest) -> SessionKey:
    """ClaimSession; the grant is judged later."""
    return SessionKey(check_project(request.project), check_id("session_id", request.session_id))


def finish_call(request: journal_pb2.FinishTurnRequest) -> FinishCall:
    """FinishTurn."""
    call = turn_call(request)
    if request.last_turn_seq < 0:
        raise InvalidArgument.of("last_turn_seq", "must not be negative")
    return FinishCall(call, request.last_turn_seq, check_reported(_ending(request)))


def _ending(request: journal_pb2.FinishTurnRequest) -> Ending:
    _check_message("error", request.error)
    _check_message("usage", request.usage)
    state = _member("state", TurnState, turn_pb2.TurnState.Name, request.state, "TURN_STATE_")
    end_reason = _member("end_reason", EndReason, turn_pb2.EndReason.Name, request.end_reason, "END_REASON_")
    return Ending(
        state=_required("state", state),
        end_reason=_required("end_reason", end_reason),
        error=request.error if request.HasField("error") else None,
        stop_reason=_text("stop_reason", request.stop_reason),
        stop_method=_member(
            "stop_method", str, turn_pb2.StopMethod.Name, request.stop_method, "STOP_METHOD_"
        ),
        runtime_after=_member(
            "runtime_after", str, turn_pb2.RuntimeAfter.Name, request.runtime_after, "RUNTIME_AFTER_"
        ),
        usage=request.usage if request.HasField("usage") else None,
    )


def _check_observation(observation: journal_pb2.RunObservation) -> None:
    _check_message("observation", observation)
    _text("observation.native_session_id", observation.native_session_id)
    _member("observation.resume_kind", str, turn_pb2.ResumeKind.Name, observation.resume_kind, "RESUME_KIND_")


def _timeout(request: journal_pb2.ReportProgressRequest) -> timedelta:
    seconds = seconds_of("phase_timeout", request.phase_timeout)
    check_range("phase_timeout", seconds, 0.001, _LONGEST_PHASE)
    return timedelta(seconds=seconds)


def _member(
    field: str, kind: Callable[[str], T], name_of: Callable[[Any], str], value: int, prefix: str
) -> T | None:
    """The domain's word for an enum's value, None for UNSPECIFIED."""
    if not value:
        return None
    try:
        return kind(name_of(value).removeprefix(prefix))
    except ValueError:
        raise InvalidArgument.of(field, f"{int(value)} cannot be told of a turn here") from None


def _required(field: str, value: T | None) -> T:
    if value is None:
        raise InvalidArgument.of(field, "is required")
    return value


def _text(field: str, value: str) -> str:
    check_size(field, value, _MAX_TEXT)
    return check_text(field, value)


def _check_message(field: str, message: Message) -> None:
    check_size(field, message.SerializeToString(), _MAX_MESSAGE)
