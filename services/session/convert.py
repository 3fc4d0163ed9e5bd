"""Domain to contract."""

from __future__ import annotations

from datetime import datetime, timedelta

from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp
from moorage.common.v1 import binding_pb2, record_pb2, turn_pb2
from moorage.owner.v1 import lease_pb2
from moorage.session.v1 import session_pb2
from moorage.workspace.v1 import workspace_pb2

from services.session import bindings
from services.session.bindings import BindingUnresolved
from services.session.commands import Command
from services.session.metadata import placement_of
from services.session.sessions import Session, SessionOperation, SessionView
from services.session.turns import QueuedTurn, Turn


def session(
    view: SessionView,
    workspace: workspace_pb2.Workspace | None = None,
    lease: lease_pb2.Lease | None = None,
) -> session_pb2.Session:
    """A session; without `workspace` its workspace's state is not told, without `lease` its holder."""
    stored = view.session
    return session_pb2.Session(
        session_id=stored.session_id,
        state=session_pb2.SessionState.Value(f"SESSION_STATE_{stored.state}"),
        create_time=timestamp(stored.create_time),
        update_time=timestamp(stored.update_time),
        etag=stored.etag,
        labels=stored.labels,
        agent=session_pb2.AgentSpec.FromString(stored.agent),
        approval_policy=turn_pb2.ApprovalPolicy.Value(f"APPROVAL_POLICY_{stored.approval_policy}"),
        limits=turn_pb2.Limits.FromString(stored.limits) if stored.limits else None,
        binding=_binding(stored),
        placement=placement_of(stored.binding_kind),
        workspace=_workspace(stored, workspace),
        head_seq=stored.head_seq,
        turn=turn(view.turn) if view.turn else None,
        queue=map(_queued, view.queue),
        lease=_lease(lease) if lease else None,
        retention=session_pb2.RetentionPolicy.Value(f"RETENTION_POLICY_{stored.retention}"),
        retention_ttl=duration(stored.retention_ttl) if stored.retention_ttl else None,
        operation=_operation(stored.operation) if stored.operation else None,
    )


def turn(stored: Turn) -> session_pb2.Turn:
    """A turn as clients see it."""
    return session_pb2.Turn(
        session_id=stored.session_id,
        turn_id=stored.turn_id,
        state=turn_pb2.TurnState.Value(f"TURN_STATE_{stored.state}"),
        end_reason=turn_pb2.EndReason.Value(f"END_REASON_{stored.end_reason or 'UNSPECIFIED'}"),
        phase=turn_pb2.TurnPhase.Value(f"TURN_PHASE_{stored.phase or 'UNSPECIFIED'}"),
        waiting_reason=stored.waiting_reason,
        phase_deadline=timestamp(stored.phase_deadline),
        prompt=record_pb2.UserMessage.FromString(stored.prompt).content,
        create_time=timestamp(stored.create_time),
        admit_time=timestamp(stored.admit_time),
        begin_time=timestamp(stored.begin_time),
        end_time=timestamp(stored.end_time),
        prompt_sent=stored.prompt_sent,
        metadata=turn_pb2.RunMetadata.FromString(stored.metadata) if stored.metadata else None,
        stop_reason=stored.stop_reason,
        error=turn_pb2.TurnError.FromString(stored.error) if stored.error else None,
        usage=turn_pb2.TokenUsage.FromString(stored.usage) if stored.usage else None,
        runtime_after=_runtime_after(stored.runtime_after),
        first_seq=stored.first_seq,
        last_seq=stored.last_seq,
        stopping=stored.stopping,
        stop_deadline=timestamp(stored.stop_deadline),
        stop_method=_stop_method(stored.stop_method),
        pending_interaction_ids=stored.pending_interaction_ids,
        queue_position=stored.queue_position,
        queue_expire_time=timestamp(stored.queue_expire_time),
    )


def command(stored: Command) -> session_pb2.Command:
    """A command as clients see it."""
    return session_pb2.Command(
        command_id=stored.command_id,
        session_id=stored.session_id,
        turn_id=stored.turn_id or "",
        kind=session_pb2.CommandKind.Value(f"COMMAND_KIND_{stored.kind}"),
        state=session_pb2.CommandState.Value(f"COMMAND_STATE_{stored.state}"),
        outcome=session_pb2.CommandOutcome.Value(f"COMMAND_OUTCOME_{stored.outcome or 'UNSPECIFIED'}"),
        stop_method=_stop_method(stored.stop_method),
        runtime_after=_runtime_after(stored.runtime_after),
        create_time=timestamp(stored.create_time),
        settle_time=timestamp(stored.settle_time),
        deadline=timestamp(stored.deadline),
        deliveries=stored.deliveries,
    )


def timestamp(time: datetime | None) -> Timestamp | None:
    """An aware time, or an absent one."""
    if time is None:
        return None
    message = Timestamp()
    message.FromDatetime(time)
    return message


def duration(time: timedelta) -> Duration:
    """How long something lasts."""
    message = Duration()
    message.FromTimedelta(time)
    return message


def _stop_method(name: str | None) -> turn_pb2.StopMethod.ValueType:
    return turn_pb2.StopMethod.Value(f"STOP_METHOD_{name or 'UNSPECIFIED'}")


def _runtime_after(name: str | None) -> turn_pb2.RuntimeAfter.ValueType:
    return turn_pb2.RuntimeAfter.Value(f"RUNTIME_AFTER_{name or 'UNSPECIFIED'}")


def _binding(stored: Session) -> binding_pb2.Binding | None:
    """Absent when it cannot be read: reading a session must go on working then."""
    try:
        return bindings.message(bindings.load(stored.binding_kind, stored.binding))
    except BindingUnresolved:
        return None


def _workspace(stored: Session, told: workspace_pb2.Workspace | None) -> session_pb2.SessionWorkspace:
    workspace = session_pb2.SessionWorkspace(workspace_id=stored.workspace_id)
    if told is not None:
        workspace.state = workspace_pb2.WorkspaceState.Name(told.state).removeprefix("WORKSPACE_STATE_")
        workspace.state_reason = told.state_reason
        workspace.provider = told.provider
        workspace.image = told.spec.image
        workspace.network = told.spec.network
        workspace.root = told.root
        if told.HasField("delete_time"):
            workspace.delete_time.CopyFrom(told.delete_time)
    return workspace


def _operation(stored: SessionOperation) -> session_pb2.SessionOperation:
    return session_pb2.SessionOperation(
        kind=stored.kind, deadline=timestamp(stored.deadline), waiting_reason=stored.waiting_reason
    )


def _queued(waiting: QueuedTurn) -> session_pb2.QueuedTurn:
    return session_pb2.QueuedTurn(
        turn_id=waiting.turn_id,
        create_time=timestamp(waiting.create_time),
        expire_time=timestamp(waiting.expire_time),
        interrupt=waiting.interrupt,
    )


def _lease(told: lease_pb2.Lease) -> session_pb2.SessionLease:
    return session_pb2.SessionLease(holder=told.holder, token=told.token, expire_time=told.expire_time)
