"""Rows as tests of the domain need them."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

from moorage.common.v1 import content_pb2, record_pb2, turn_pb2
from moorage.session.v1 import session_pb2

from services.session import bindings
from services.session.bindings import Binding, LocalBinding, Origin
from services.session.sessions import ApprovalPolicy, NewSession, RetentionPolicy, Session, SessionState
from services.session.turns import NewTurn, Turn, TurnPhase, TurnState

# A session may be stored until then.
LATER = datetime(9999, 1, 1, tzinfo=UTC)
TIME = datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)
TRACEPARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
LOCAL = LocalBinding(Origin.SUPPLIED, "/srv/app")


def new_session(session_id: str = "s1", *, project: str = "default", binding: Binding = LOCAL) -> NewSession:
    """A session to store."""
    return NewSession(
        project=project,
        session_id=session_id,
        labels={},
        agent=session_pb2.AgentSpec(profile="demo").SerializeToString(),
        profile="demo",
        approval_policy=ApprovalPolicy.ALLOW,
        limits=turn_pb2.Limits(max_tool_calls=7).SerializeToString(),
        binding_kind=binding.kind,
        binding=bindings.message(binding).SerializeToString(),
        workspace_id=f"ws_{session_id}",
        retention=RetentionPolicy.MANUAL,
        retention_ttl=None,
    )


def session(binding: Binding = LOCAL) -> Session:
    """A stored session."""
    draft = new_session(binding=binding)
    return Session(
        **{name: getattr(draft, name) for name in NewSession.__slots__},
        state=SessionState.OPEN,
        operation=None,
        version=1,
        head_seq=0,
        token=0,
        create_time=TIME,
        update_time=TIME,
    )


def prompt(text: str = "hello") -> bytes:
    """A prompt as it is stored."""
    block = content_pb2.ContentBlock(text=content_pb2.TextContent(text=text))
    return record_pb2.UserMessage(content=[block]).SerializeToString()


def new_turn(turn_id: str = "t1", session_id: str = "s1", *, project: str = "default") -> NewTurn:
    """A turn to admit."""
    return NewTurn(project, session_id, turn_id, prompt(), TRACEPARENT)


def turn(**changes: object) -> Turn:
    """A turn begun by a runner."""
    begun = Turn(
        project="default",
        session_id="s1",
        turn_id="t2",
        number=2,
        state=TurnState.RUNNING,
        end_reason=None,
        phase=TurnPhase.PREPARING_WORKSPACE,
        waiting_reason="",
        phase_deadline=None,
        prompt=prompt(),
        traceparent=TRACEPARENT,
        dispatch_time=TIME,
        dispatch_attempts=1,
        dispatch_endpoint="127.0.0.1:1",
        token=42,
        attempt_id="attempt",
        runner_id="runner/1",
        prompt_sent=False,
        native_session_id="",
        observation=b"",
        metadata=None,
        previous_turn_id="t1",
        last_turn_seq=0,
        first_seq=5,
        last_seq=0,
        stop_reason="",
        stop_method=None,
        runtime_after=None,
        error=None,
        usage=None,
        stop_deadline=None,
        pending_interaction_ids=[],
        create_time=TIME,
        admit_time=TIME,
        begin_time=TIME,
        end_time=None,
        queue_expire_time=None,
    )
    return replace(begun, **changes)  # type: ignore[arg-type]
