"""`moorage session …`: make, list and look at sessions."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from moorage.common.v1 import binding_pb2
from moorage.session.v1 import session_pb2

from services.cli.app import Context, JsonOption, call
from services.cli.commands_run import Approval, policy_of
from services.cli.connection import Connection
from services.cli.exits import Exit
from services.cli.transcript import state_name

app = typer.Typer(no_args_is_help=True, help="Sessions.")


@app.command()
def create(
    context: typer.Context,
    session_id: Annotated[str, typer.Argument(help="Its id. Default: a new one.")] = "",
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
        raise typer.BadParameter("--directory and --provision exclude each other")
    request = session_pb2.CreateSessionRequest(
        session_id=session_id,
        agent=session_pb2.AgentSpec(profile=profile),
        approval_policy=policy_of(approval),
        labels=_labels(label or []),
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
    limit: Annotated[int, typer.Option(min=1, max=1000, help="At most so many.")] = 50,
    _json: JsonOption = False,
) -> None:
    """List sessions, newest first."""
    options: Context = context.obj
    request = session_pb2.ListSessionsRequest(labels=_labels(label or []), page_size=limit)

    async def work(connection: Connection) -> Exit:
        answer = await connection.sessions.ListSessions(request, metadata=connection.metadata)
        if options.output.as_json:
            for session in answer.sessions:
                options.output.message(session)
        else:
            options.output.table(
                ("session", "profile", "records", "turn", "created", "works in"), map(_row, answer.sessions)
            )
        return Exit.COMPLETED

    call(options, work)


@app.command()
def get(
    context: typer.Context,
    session_id: Annotated[str, typer.Argument(help="The session.")],
    _json: JsonOption = False,
) -> None:
    """Show what is going on in a session."""
    options: Context = context.obj

    async def work(connection: Connection) -> Exit:
        request = session_pb2.GetSessionRequest(session_id=session_id)
        answer = await connection.sessions.GetSession(request, metadata=connection.metadata)
        if options.output.as_json:
            options.output.message(answer.session)
        else:
            options.output.table(("", ""), _facts(answer.session))
        return Exit.COMPLETED

    call(options, work)


def _labels(pairs: list[str]) -> dict[str, str]:
    labels = {}
    for pair in pairs:
        key, separator, value = pair.partition("=")
        if not separator:
            raise typer.BadParameter(f"--label {pair}: must be KEY=VALUE")
        labels[key] = value
    return labels


def _row(session: session_pb2.Session) -> tuple[str, ...]:
    return (
        session.session_id,
        session.agent.profile,
        str(session.head_seq),
        state_name(session.turn.state) if session.HasField("turn") else "",
        session.create_time.ToJsonString(),
        session.binding.local.directory,
    )


def _facts(session: session_pb2.Session) -> list[tuple[str, str]]:
    workspace = session.workspace
    facts = [
        ("session", session.session_id),
        ("profile", session.agent.profile),
        ("works in", session.binding.local.directory),
        (
            "workspace",
            " ".join(filter(None, (workspace.workspace_id, workspace.state, workspace.state_reason))),
        ),
        ("records", str(session.head_seq)),
        ("labels", " ".join(f"{key}={value}" for key, value in sorted(session.labels.items()))),
    ]
    if session.HasField("turn"):
        turn = session.turn
        facts.append(("turn", f"{turn.turn_id} {state_name(turn.state)}"))
        facts.append(("waits for", turn.waiting_reason))
    if session.HasField("lease"):
        lease = session.lease
        facts.append(
            ("driven by", f"{lease.holder}, token {lease.token}, until {lease.expire_time.ToJsonString()}")
        )
    return [(name, value) for name, value in facts if value]
