"""`moorage session create`: a session, and where it works."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer
from moorage.common.v1 import binding_pb2
from moorage.session.v1 import session_pb2

from services.cli import readiness
from services.cli.agents import AgentOptionOption, McpOption, ModelOption, ModeOption, SecretOption, agent_of
from services.cli.app import Context, JsonOption, call
from services.cli.connection import Connection
from services.cli.exits import Exit
from services.cli.making import (
    ArchiveOption,
    CpusOption,
    DockerOption,
    GitOption,
    ImageOption,
    Making,
    MemoryOption,
    NetworkOption,
    PidsOption,
    SetupOption,
)
from services.cli.options import Approval, ApprovalOption, labels_of
from services.cli.output import Output
from services.cli.quantities import duration_of


class Retention(StrEnum):
    """What becomes of the workspace."""

    delete_on_close = "delete-on-close"
    manual = "manual"
    pinned = "pinned"

    @property
    def message(self) -> session_pb2.RetentionPolicy.ValueType:
        """The contract's value."""
        return session_pb2.RetentionPolicy.Value(f"RETENTION_POLICY_{self.name.upper()}")


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
    docker: DockerOption = False,
    image: ImageOption = "",
    network: NetworkOption = None,
    cpus: CpusOption = None,
    memory: MemoryOption = "",
    pids: PidsOption = None,
    git: GitOption = "",
    archive: ArchiveOption = "",
    setup: SetupOption = "",
    ttl: Annotated[str, typer.Option(metavar="TIME", help="Remove the new workspace after, e.g. 12h.")] = "",
    idle_ttl: Annotated[
        str, typer.Option(metavar="TIME", help="Remove it when it was not used for so long.")
    ] = "",
    retention: Annotated[Retention | None, typer.Option(help="What closing does with the workspace.")] = None,
    keep_for: Annotated[
        str, typer.Option(metavar="TIME", help="Keep the workspace for so long after closing, e.g. 2d.")
    ] = "",
    label: Annotated[list[str] | None, typer.Option(metavar="KEY=VALUE", help="A label; repeatable.")] = None,
    approval: ApprovalOption = Approval.ask,
    model: ModelOption = "",
    mode: ModeOption = "",
    agent_option: AgentOptionOption = None,
    mcp: McpOption = None,
    secret: SecretOption = None,
    wait_ready: Annotated[
        bool,
        typer.Option("--wait", help="Wait until the workspace is ready; exit code 1 when it will not be."),
    ] = False,
    _json: JsonOption = False,
) -> None:
    """Make a session: in a directory, or in a workspace that is made for it."""
    options: Context = context.obj
    request = session_pb2.CreateSessionRequest(
        session_id=session_id,
        agent=agent_of(profile, model, mode, agent_option, mcp, secret),
        approval_policy=approval.message,
        labels=labels_of(label),
    )
    making = Making(provision, docker, image, network, cpus, memory, pids, git, archive, setup, ttl, idle_ttl)
    _put_place(request, making, directory)
    _put_retention(request, retention, keep_for)

    async def work(connection: Connection) -> Exit:
        output = options.output
        session = (await connection.sessions.CreateSession(request, metadata=connection.metadata)).session
        if not output.as_json:
            output.line(session.session_id)
        if wait_ready:
            session = await readiness.settled(connection, session.session_id, output.hint)
        if output.as_json:
            output.message(session)
        return _ready(output, session) if wait_ready else Exit.COMPLETED

    call(options, work)


def _ready(output: Output, session: session_pb2.Session) -> Exit:
    if session.workspace.state == "READY":
        return Exit.COMPLETED
    output.error(
        f"the session is there, its workspace {readiness.described(session.workspace)}",
        hint=f"`moorage session delete {session.session_id}` removes both",
    )
    return Exit.FAILED


def _put_place(request: session_pb2.CreateSessionRequest, making: Making, directory: Path | None) -> None:
    if directory is None:
        if making:
            request.provision.CopyFrom(making.spec())
    elif making.in_container and not making.has_source:
        request.provision.CopyFrom(making.spec(directory.absolute()))
    elif making:
        raise typer.BadParameter("they exclude each other", param_hint=f"--directory and {making.first_flag}")
    else:
        local = binding_pb2.LocalBinding(directory=str(directory.absolute()))
        request.binding.CopyFrom(binding_pb2.Binding(local=local))


def _put_retention(
    request: session_pb2.CreateSessionRequest, retention: Retention | None, keep_for: str
) -> None:
    if retention and keep_for:
        raise typer.BadParameter("they exclude each other", param_hint="--retention and --keep-for")
    if keep_for:
        request.retention = session_pb2.RETENTION_POLICY_TTL
        request.retention_ttl.CopyFrom(duration_of("--keep-for", keep_for))
    elif retention:
        request.retention = retention.message
