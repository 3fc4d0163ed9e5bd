"""`moorage session …`: make, list and look at sessions."""

from __future__ import annotations

from datetime import UTC
from pathlib import Path
from typing import Annotated

import typer
from google.protobuf.timestamp_pb2 import Timestamp
from moorage.common.v1 import binding_pb2
from moorage.session.v1 import session_pb2

from services.cli.app import Context, JsonOption, call
from services.cli.connection import Connection
from services.cli.directory import find_session
from services.cli.exits import Exit
from services.cli.options import Approval, labels_of, policy_of
from services.cli.transcript import state_name

_COLUMNS = ("session", "created", "records", "turn", "works in")
_PAGE = 1000

app = typer.Typer(no_args_is_help=True, help="Sessions.")


@app.command()
def create(
    context: typer.Context,
    session_id: Annotated[str, typer.Argument(metavar="[SESSION]", help="Its id. Default: a new one.")] = "",
    profile: Annotated[str, typer.Option(help="The agent's profile.")] = "",
    directory: Annotated[
        Path | None, typer.Option(help="Where it works. Default: the service's default directory.")
    ] = None,
    provision: Annotated[
        str, typer.Option(metavar="PROVIDER", help="Make a new workspace, e.g. with `local`.")
    ] = "",
    label: Annotated[list[str] | None, typer.Option(metavar="KEY=VALUE", help="A label; repeatable.")] = None,
    approval: Annotated[
        Approval, typer.Option(help="What happens to the agent's questions.")
    ] = Approval.deny,
    wait_ready: Annotated[bool, typer.Option("--wait", help="Wait until the workspace is ready.")] = False,
    _json: JsonOption = False,
) -> None:
    """Make a session."""
    options: Context = context.obj
    if directory and provision:
        raise typer.BadParameter("they exclude each other", param_hint="--directory and --provision")
    request = session_pb2.CreateSessionRequest(
        session_id=session_id,
        agent=session_pb2.AgentSpec(profile=profile),
        approval_policy=policy_of(approval),
        labels=labels_of(label),
        wait_ready=wait_ready,
    )
    if directory:
        local = binding_pb2.LocalBinding(directory=str(directory.absolute()))
        request.binding.CopyFrom(binding_pb2.Binding(local=local))
    if provision:
        request.provision.provider = provision

    async def work(connection: Connection) -> Exit:
        answer = await connection.sessions.CreateSession(request, metadata=connection.metadata)
        if options.output.as_json:
            options.output.message(answer.session)
        else:
            options.output.line(answer.session.session_id)
        return Exit.COMPLETED

    call(options, work)


@app.command("list")
def list_sessions(
    context: typer.Context,
    label: Annotated[list[str] | None, typer.Option(metavar="KEY=VALUE", help="Only with it.")] = None,
    limit: Annotated[int, typer.Option(min=1, metavar="NUMBER", help="At most so many.")] = 50,
    _json: JsonOption = False,
) -> None:
    """List sessions, newest first."""
    options: Context = context.obj
    labels = labels_of(label)

    async def work(connection: Connection) -> Exit:
        sessions, more = await _newest(connection, labels, limit)
        if options.output.as_json:
            for session in sessions:
                options.output.message(session)
        else:
            options.output.table(map(_row, sessions), _COLUMNS)
        if more:
            options.output.hint(f"there are more than {limit}; --limit shows them")
        return Exit.COMPLETED

    call(options, work)


@app.command()
def get(
    context: typer.Context,
    session_id: Annotated[
        str, typer.Argument(metavar="[SESSION]", help="The session. Default: that of this directory.")
    ] = "",
    _json: JsonOption = False,
) -> None:
    """Show what is going on in a session."""
    options: Context = context.obj

    async def work(connection: Connection) -> Exit:
        wanted = session_id or (await find_session(connection, Path.cwd())).session_id
        request = session_pb2.GetSessionRequest(session_id=wanted)
        answer = await connection.sessions.GetSession(request, metadata=connection.metadata)
        if options.output.as_json:
            options.output.message(answer.session)
        else:
            options.output.table(_facts(answer.session))
        return Exit.COMPLETED

    call(options, work)


async def _newest(
    connection: Connection, labels: dict[str, str], limit: int
) -> tuple[list[session_pb2.Session], bool]:
    """At most `limit` sessions, and whether there are more."""
    request = session_pb2.ListSessionsRequest(labels=labels)
    sessions: list[session_pb2.Session] = []
    while True:
        request.page_size = min(_PAGE, limit - len(sessions))
        page = await connection.sessions.ListSessions(request, metadata=connection.metadata)
        sessions.extend(page.sessions)
        request.page_token = page.next_page_token
        if not page.next_page_token or len(sessions) >= limit:
            return sessions, bool(page.next_page_token)


def _row(session: session_pb2.Session) -> tuple[str, ...]:
    return (
        session.session_id,
        _local(session.create_time)[: -len(":00")],
        str(session.head_seq),
        state_name(session.turn.state) if session.HasField("turn") else "",
        session.binding.local.directory,
    )


def _facts(session: session_pb2.Session) -> list[tuple[str, str]]:
    workspace, turn, lease = session.workspace, session.turn, session.lease
    facts = {
        "session": session.session_id,
        "created": _local(session.create_time),
        "profile": session.agent.profile,
        "works in": session.binding.local.directory,
        "workspace": f"{workspace.workspace_id} {workspace.state} {workspace.state_reason}".strip(),
        "records": str(session.head_seq),
        "labels": " ".join(f"{key}={value}" for key, value in sorted(session.labels.items())),
    }
    if session.HasField("turn"):
        facts["turn"] = f"{turn.turn_id} {state_name(turn.state)}"
        facts["waits"] = turn.waiting_reason
    if session.HasField("lease"):
        facts["driven by"] = f"{lease.holder}, token {lease.token}, until {_local(lease.expire_time)}"
    return [(name, value) for name, value in facts.items() if value]


def _local(time: Timestamp) -> str:
    return time.ToDatetime(UTC).astimezone().strftime("%Y-%m-%d %H:%M:%S")
