"""`moorage workspace …`: where sessions work and what makes it, for operators."""

from __future__ import annotations

from datetime import UTC
from typing import Annotated, Final

import typer
from google.protobuf.timestamp_pb2 import Timestamp
from moorage.common.v1 import provision_pb2
from moorage.workspace.v1 import workspace_pb2
from moorage.workspace.v1.workspace_pb2_grpc import WorkspaceServiceStub

from services.cli.app import Context, JsonOption, run
from services.cli.commands import garbage
from services.cli.exits import Exit
from services.cli.facts import local
from services.cli.making import network_name
from services.cli.operators import WorkspaceOption, channel_to
from services.cli.providers import limits_in_words, rows_of
from services.cli.quantities import told_duration

COLUMNS: Final = ("workspace", "session", "state", "provider, image, root")
_PAGE: Final = 1000

app = typer.Typer(no_args_is_help=True, help="Workspaces.")
app.command("gc")(garbage.collect)


@app.command("list")
def list_workspaces(
    context: typer.Context, workspace: WorkspaceOption = "", _json: JsonOption = False
) -> None:
    """List the project's workspaces."""
    options: Context = context.obj

    async def work() -> Exit:
        async with channel_to("workspace", workspace) as channel:
            request = workspace_pb2.ListWorkspacesRequest(project=options.project, page_size=_PAGE)
            page = await WorkspaceServiceStub(channel).ListWorkspaces(request)
        if options.output.as_json:
            for found in page.workspaces:
                options.output.message(found)
        else:
            options.output.table(map(_row, page.workspaces), COLUMNS, below=True)
        if page.next_page_token:
            options.output.hint(f"there are more than {_PAGE}")
        return Exit.COMPLETED

    run(options.output, work)


@app.command()
def get(
    context: typer.Context,
    workspace_id: Annotated[
        str, typer.Argument(metavar="WORKSPACE", help="As `workspace list` and `session get` tell it.")
    ],
    workspace: WorkspaceOption = "",
    _json: JsonOption = False,
) -> None:
    """Show a workspace, also one that was removed."""
    options: Context = context.obj

    async def work() -> Exit:
        async with channel_to("workspace", workspace) as channel:
            request = workspace_pb2.GetWorkspaceRequest(project=options.project, workspace_id=workspace_id)
            found = (await WorkspaceServiceStub(channel).GetWorkspace(request)).workspace
        if options.output.as_json:
            options.output.message(found)
        else:
            options.output.table(_facts(found))
        return Exit.COMPLETED

    run(options.output, work)


@app.command()
def providers(context: typer.Context, workspace: WorkspaceOption = "", _json: JsonOption = False) -> None:
    """List what can make workspaces, and what can be asked of it."""
    options: Context = context.obj

    async def work() -> Exit:
        async with channel_to("workspace", workspace) as channel:
            answer = await WorkspaceServiceStub(channel).ListProviders(workspace_pb2.ListProvidersRequest())
        if options.output.as_json:
            for found in answer.providers:
                options.output.message(found)
        else:
            options.output.table(rows_of(answer.providers))
        return Exit.COMPLETED

    run(options.output, work)


def _row(found: workspace_pb2.Workspace) -> tuple[str, ...]:
    return (
        found.workspace_id,
        found.session_id,
        _state(found),
        "  ".join(filter(None, (found.provider, found.spec.image, found.root))),
    )


def _state(found: workspace_pb2.Workspace) -> str:
    return workspace_pb2.WorkspaceState.Name(found.state).removeprefix("WORKSPACE_STATE_")


def _facts(found: workspace_pb2.Workspace) -> list[tuple[str, str]]:
    spec = found.spec
    facts = {
        "workspace": found.workspace_id,
        "session": found.session_id,
        "state": f"{_state(found)} {found.state_reason}".strip(),
        "provider": found.provider,
        "image": spec.image,
        "network": network_name(spec.network) if spec.network else "",
        "limits": limits_in_words(spec.limits),
        "source": _source(spec.source),
        "set up by": _setup(found),
        "root": found.root,
        "instance": f"{found.instance_id} at {found.endpoint}",
        "token": str(found.token),
        "created": _time(found, "create_time"),
        "last used": _time(found, "use_time"),
        "goes after": told_duration(spec.ttl) if spec.HasField("ttl") else "",
        "goes unused for": told_duration(spec.idle_ttl) if spec.HasField("idle_ttl") else "",
        "goes at": _time(found, "delete_time"),
    }
    return [(name, value) for name, value in facts.items() if value]


def _time(found: workspace_pb2.Workspace, name: str) -> str:
    time: Timestamp = getattr(found, name)
    return local(time) if time.ToDatetime(UTC).timestamp() else ""


def _source(source: provision_pb2.WorkspaceSource) -> str:
    match source.WhichOneof("kind"):
        case "git":
            which = source.git.commit or source.git.ref
            return f"{source.git.url}{'#' if which else ''}{which}"
        case "archive":
            return source.archive.url or "an archive"
        case "path":
            return source.path.directory
        case _:
            return ""


def _setup(found: workspace_pb2.Workspace) -> str:
    if not found.spec.setup.command:
        return ""
    command = " ".join(found.spec.setup.command)
    ended = found.setup.ended
    how = {
        "exit_code": f": exit code {ended.exit_code}",
        "signal": f": ended by {ended.signal}",
        "timeout": ": took too long",
    }.get(ended.WhichOneof("how") or "", "")
    return f"{command}{how}"
