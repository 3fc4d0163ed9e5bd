"""Records: the kinds of transcript entries, their names, and how a repeat is told from a conflict (R1)."""

from __future__ import annotations

import enum
import hashlib
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from moorage.common.v1 import record_pb2, turn_pb2
from moorage.common.v1.errors_pb2 import ErrorReason

from services.common.errors import InvalidArgument, OutOfRange
from services.common.validation import check_size
from services.session.interactions import Settlement
from services.session.journal.endings import Ending

MAX_BODY: Final = 1024 * 1024


class RecordKind(enum.StrEnum):
    """What a record tells: the names of RecordBody's alternatives."""

    USER_MESSAGE = "user_message"
    AGENT_MESSAGE = "agent_message"
    THOUGHT = "thought"
    TOOL_CALL = "tool_call"
    TOOL_UPDATE = "tool_update"
    PLAN = "plan"
    USAGE = "usage"
    TURN_STARTED = "turn_started"
    TURN_ENDED = "turn_ended"
    INTERACTION_OPENED = "interaction_opened"
    INTERACTION_CLOSED = "interaction_closed"
    ERROR = "error"
    RAW_JSON = "raw_json"
    AGENT_COMMANDS = "agent_commands"
    AGENT_MODE = "agent_mode"
    AGENT_OPTIONS = "agent_options"
    AGENT_SESSION_INFO = "agent_session_info"
    WORKSPACE_PREPARED = "workspace_prepared"


# What AppendRecords takes; the others have a state behind them that must not be told of without it.
_OF_RUNNERS: Final = frozenset(
    {
        RecordKind.AGENT_MESSAGE,
        RecordKind.AGENT_COMMANDS,
        RecordKind.AGENT_MODE,
        RecordKind.AGENT_OPTIONS,
        RecordKind.AGENT_SESSION_INFO,
        RecordKind.THOUGHT,
        RecordKind.TOOL_CALL,
        RecordKind.TOOL_UPDATE,
        RecordKind.PLAN,
        RecordKind.USAGE,
        RecordKind.ERROR,
        RecordKind.RAW_JSON,
        RecordKind.WORKSPACE_PREPARED,
    }
)


@dataclass(frozen=True, slots=True)
class Record:
    """A record as it is stored; `body` is a serialised RecordBody.

    Those of a runner have a `turn_seq` above 0, those of the session service a `record_id`.
    `kind` may be one that this build does not know.
    """

    session_id: str
    seq: int
    turn_id: str
    turn_seq: int
    record_id: str
    kind: str
    body: bytes
    create_time: datetime


@dataclass(frozen=True, slots=True)
class NewRecord:
    """A record to store, with the seq that it got under the session's lock."""

    turn_id: str
    seq: int
    kind: RecordKind
    body: bytes
    record_id: str | None = None
    turn_seq: int | None = None
    body_hash: bytes | None = None


@dataclass(frozen=True, slots=True)
class RecordPage:
    """Records in the order of their seq, and the seq of the session's last one at that moment."""

    records: tuple[Record, ...]
    head_seq: int


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """A sign of life of a watch; `time` is by the service's clock."""

    head_seq: int
    time: datetime


class CursorOutOfRange(OutOfRange):
    """after_seq {after_seq} lies beyond the last record {head_seq} of session {session_id}"""

    reason = ErrorReason.ERROR_REASON_CURSOR_OUT_OF_RANGE


def record_id(name: str, kind: RecordKind) -> str:
    """The name of a record made by the session service: one of a kind per turn or interaction."""
    return f"{name}/{kind}"


def kind_of(body: record_pb2.RecordBody) -> RecordKind | None:
    """The kind of a body; None when it is empty or newer than this build."""
    name = body.WhichOneof("body")
    return RecordKind(name) if name else None


def check_body(field: str, body: record_pb2.RecordBody) -> tuple[RecordKind, bytes]:
    """Kind and bytes of a body that a runner may append, else InvalidArgument."""
    kind = kind_of(body)
    if kind is None:
        raise InvalidArgument.of(field, "must be one of the alternatives")
    if kind not in _OF_RUNNERS:
        raise InvalidArgument.of(field, f"{kind} is not appended by runners")
    # Not stored as text: JSON and text of PostgreSQL have no U+0000, and agents send it.
    content = body.SerializeToString(deterministic=True)
    check_size(field, content, MAX_BODY)
    return kind, content


def hash_of(body: bytes) -> bytes:
    """SHA-256: the same turn_seq with another hash is a conflict."""
    return hashlib.sha256(body).digest()


def user_message(prompt: bytes) -> record_pb2.RecordBody:
    """What the user said; `prompt` is a serialised UserMessage."""
    return record_pb2.RecordBody(user_message=record_pb2.UserMessage.FromString(prompt))


def turn_started(runner_id: str, token: int, attempt_id: str) -> record_pb2.RecordBody:
    """A runner began the turn."""
    started = record_pb2.TurnStarted(runner_id=runner_id, token=token, attempt_id=attempt_id)
    return record_pb2.RecordBody(turn_started=started)


def interaction_closed(settlement: Settlement) -> record_pb2.RecordBody:
    """A question was settled."""
    closed = record_pb2.InteractionClosed(
        interaction_id=settlement.interaction_id,
        outcome=settlement.state.outcome,
        option_id=settlement.option_id,
        settled_by=settlement.settled_by,
        values=settlement.values,
    )
    return record_pb2.RecordBody(interaction_closed=closed)


def turn_error(error: turn_pb2.TurnError) -> record_pb2.RecordBody:
    """What the session service has to say about a turn that it ends."""
    return record_pb2.RecordBody(error=record_pb2.ErrorRecord(error=error))


def turn_ended(ending: Ending) -> record_pb2.RecordBody:
    """The last record of a turn."""
    ended = record_pb2.TurnEnded(
        state=turn_pb2.TurnState.Value(f"TURN_STATE_{ending.state}"),
        end_reason=turn_pb2.EndReason.Value(f"END_REASON_{ending.end_reason}"),
        stop_reason=ending.stop_reason,
        stop_method=turn_pb2.StopMethod.Value(f"STOP_METHOD_{ending.stop_method or 'UNSPECIFIED'}"),
        runtime_after=turn_pb2.RuntimeAfter.Value(f"RUNTIME_AFTER_{ending.runtime_after or 'UNSPECIFIED'}"),
        error=ending.error,
        usage=ending.usage,
    )
    return record_pb2.RecordBody(turn_ended=ended)
