"""Sessions: what is stored about one, and why a call about one is refused."""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from moorage.common.v1.errors_pb2 import ErrorReason

from services.common.errors import Aborted, AlreadyExists, FailedPrecondition, NotFound, Unavailable
from services.session.turns import QueuedTurn, Turn


class SessionState(enum.StrEnum):
    """OPEN -> CLOSING -> CLOSED; only an OPEN one admits and begins turns."""

    OPEN = "OPEN"
    CLOSING = "CLOSING"
    CLOSED = "CLOSED"


class RetentionPolicy(enum.StrEnum):
    """What becomes of a session's workspace when it is closed; what was supplied is never removed.

    TTL keeps it for a while; MANUAL leaves it to its own lifetimes, PINNED to nothing but people.
    """

    DELETE_ON_CLOSE = "DELETE_ON_CLOSE"
    MANUAL = "MANUAL"
    TTL = "TTL"
    PINNED = "PINNED"


class ApprovalPolicy(enum.StrEnum):
    """What happens to an agent's question whether it may do something."""

    ASK = "ASK"
    ALLOW = "ALLOW"
    DENY = "DENY"


@dataclass(frozen=True, slots=True)
class NewSession:
    """What CreateSession stores. `agent`, `limits` and `binding` are serialised messages.

    `retention_ttl` is set with the policy TTL, and None otherwise.
    """

    project: str
    session_id: str
    labels: Mapping[str, str]
    agent: bytes
    profile: str
    approval_policy: ApprovalPolicy
    limits: bytes
    binding_kind: str
    binding: bytes
    workspace_id: str
    retention: RetentionPolicy
    retention_ttl: timedelta | None


class OperationKind(enum.StrEnum):
    """What is done with a session as a whole. DELETE does what CLOSE does first, and overtakes it."""

    CLOSE = "CLOSE"
    DELETE = "DELETE"


@dataclass(frozen=True, slots=True)
class SessionOperation:
    """What holds a session as a whole. At its `deadline` it is taken up (again)."""

    kind: OperationKind
    deadline: datetime
    waiting_reason: str


@dataclass(frozen=True, slots=True)
class Session(NewSession):
    """A session as it is stored.

    `head_seq` is the number of its last record, `token` the highest fencing token that a
    holder has shown, `version` grows with every UpdateSession.
    """

    state: SessionState
    operation: SessionOperation | None
    version: int
    head_seq: int
    token: int
    create_time: datetime
    update_time: datetime

    @property
    def etag(self) -> str:
        """Names this version of what clients can change."""
        return f"v{self.version}"

    @property
    def resource(self) -> str:
        """The name of the session's lease."""
        return resource_of(self.project, self.session_id)


@dataclass(frozen=True, slots=True)
class SessionChange:
    """What UpdateSession changes; None leaves a value. An empty `etag` fits every version."""

    project: str
    session_id: str
    labels: Mapping[str, str] | None
    approval_policy: ApprovalPolicy | None
    limits: bytes | None
    etag: str


@dataclass(frozen=True, slots=True)
class SessionView:
    """A session, its turn in progress and its queue, next turn first, all of one moment."""

    session: Session
    turn: Turn | None
    queue: Sequence[QueuedTurn] = ()


def resource_of(project: str, session_id: str) -> str:
    """The name of a session's lease."""
    return f"projects/{project}/sessions/{session_id}"


class SessionNotFound(NotFound):
    """session {session_id} does not exist in project {project}"""

    reason = ErrorReason.ERROR_REASON_SESSION_NOT_FOUND


class SessionAlreadyExists(AlreadyExists):
    """session {session_id} exists in project {project}"""

    reason = ErrorReason.ERROR_REASON_SESSION_ALREADY_EXISTS


class SessionDeleted(AlreadyExists):
    """session {session_id} was deleted from project {project}; its id is not used again"""

    reason = ErrorReason.ERROR_REASON_SESSION_ALREADY_EXISTS


class CreationOverdue(Unavailable):
    """session {session_id} was not stored in time after its workspace was asked for; nothing was made"""


class SessionClosed(FailedPrecondition):
    """session {session_id} is {state}"""

    reason = ErrorReason.ERROR_REASON_SESSION_CLOSED


class EtagMismatch(Aborted):
    """session {session_id} has the etag {stored}, not {given}"""

    reason = ErrorReason.ERROR_REASON_ETAG_MISMATCH


def check_open(session: Session) -> None:
    """Refuse what only an open session takes."""
    if session.state is not SessionState.OPEN:
        raise SessionClosed(session_id=session.session_id, state=session.state)
