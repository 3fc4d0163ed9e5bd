"""What tables tell about sessions, in words."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC

from google.protobuf.timestamp_pb2 import Timestamp
from moorage.session.v1 import session_pb2

from services.cli.answering import how_to_answer, offered
from services.cli.forms import properties_of
from services.cli.making import network_name
from services.cli.stopping import released
from services.cli.transcript import state_name
from services.cli.wishes import policy_name


def row_of(session: session_pb2.Session) -> tuple[str, ...]:
    """A session in a list of them."""
    return (
        session.session_id,
        local(session.create_time)[: -len(":00")],
        str(session.head_seq),
        state_name(session.turn.state) if session.HasField("turn") else _state(session).lower(),
        _place(session),
    )


def of_session(
    session: session_pb2.Session, asked: Sequence[session_pb2.Interaction] = ()
) -> list[tuple[str, str]]:
    """What is going on in a session, by name; `asked` are the questions that wait."""
    workspace, turn, lease = session.workspace, session.turn, session.lease
    facts = {
        "session": session.session_id,
        "state": _state(session),
        "created": local(session.create_time),
        "profile": session.agent.profile,
        "model": session.agent.model,
        "mode": session.agent.mode,
        "approval": policy_name(session.approval_policy),
        "works in": workspace.root or session.binding.local.directory,
        "workspace": f"{workspace.workspace_id} {workspace.state} {workspace.state_reason}".strip(),
        **_container(workspace),
        "kept until": local(workspace.delete_time) if workspace.HasField("delete_time") else "",
        "records": str(session.head_seq),
        "labels": " ".join(f"{key}={value}" for key, value in sorted(session.labels.items())),
    }
    if session.HasField("turn"):
        stopping = " (being stopped)" if turn.stopping else ""
        facts["turn"] = f"{turn.turn_id} {state_name(turn.state)}{stopping}"
        facts["waits"] = "for your answer" if asked else turn.waiting_reason
    if session.HasField("lease"):
        facts["driven by"] = f"{lease.holder}, token {lease.token}, until {local(lease.expire_time)}"
    facts["queue"] = _queue(session)
    told = [(name, value) for name, value in facts.items() if value]
    for question in asked:
        told += of_question(question, named=len(asked) > 1)
    return told


def of_question(asked: session_pb2.Interaction, *, named: bool) -> list[tuple[str, str]]:
    """A question, what may be answered, and how; `named` when others wait too."""
    fields = [(f"  {each.name}", each.label) for each in properties_of(asked.schema)]
    how = how_to_answer(asked.session_id, asked, named=named)
    return [("asks", asked.title), ("offers", offered(asked.options)), *fields, ("answer", how)]


def _place(session: session_pb2.Session) -> str:
    """As far as a list tells."""
    binding = session.binding
    if binding.HasField("cloud"):
        return f"{binding.cloud.provider} {binding.cloud.workspace_ref}"
    return binding.local.directory


def _container(workspace: session_pb2.SessionWorkspace) -> dict[str, str]:
    if not workspace.image:
        return {}
    return {
        "container": f"{workspace.image} ({workspace.provider})",
        "network": network_name(workspace.network),
    }


def _state(session: session_pb2.Session) -> str:
    """Empty for an open one."""
    if session.state == session_pb2.SESSION_STATE_OPEN:
        return ""
    name = session_pb2.SessionState.Name(session.state).removeprefix("SESSION_STATE_")
    return f"{name} {session.operation.waiting_reason}".strip()


def _queue(session: session_pb2.Session) -> str:
    """Which turns wait, and for what."""
    if not session.queue:
        return ""
    names = ", ".join(map(_queued, session.queue))
    if session.HasField("turn"):
        return f"{names}: behind the turn in progress"
    return f"{names}: held, {released(session.session_id, session.queue[0].turn_id)}"


def _queued(waiting: session_pb2.QueuedTurn) -> str:
    return f"{waiting.turn_id}{' (interrupts)' * waiting.interrupt}"


def local(time: Timestamp) -> str:
    """A time as it is here."""
    return time.ToDatetime(UTC).astimezone().strftime("%Y-%m-%d %H:%M:%S")
