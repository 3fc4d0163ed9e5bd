"""`moorage workspace gc`: one pass of the collector, now."""

from __future__ import annotations

from typing import Annotated

import typer
from moorage.workspace.v1 import workspace_pb2
from moorage.workspace.v1.workspace_pb2_grpc import WorkspaceServiceStub

from services.cli.app import Context, JsonOption, run
from services.cli.exits import Exit
from services.cli.operators import WorkspaceOption, channel_to
from services.cli.output import Output


def collect(
    context: typer.Context,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only tell what would be done.")] = False,
    provider: Annotated[str, typer.Option(metavar="NAME", help="Only of this provider.")] = "",
    workspace: WorkspaceOption = "",
    _json: JsonOption = False,
) -> None:
    """Remove what no workspace has, and notice workspaces that are gone; of all projects.

    The service does so by itself each minute. The exit code is 1 when something is left: it could
    not be removed, or a provider could not be asked.
    """
    options: Context = context.obj

    async def work() -> Exit:
        async with channel_to("workspace", workspace) as channel:
            request = workspace_pb2.CollectGarbageRequest(dry_run=dry_run, provider=provider)
            found = await WorkspaceServiceStub(channel).CollectGarbage(request)
        _tell(options.output, found, dry_run=dry_run)
        left = found.unasked or not (dry_run or all(each.done for each in found.garbage))
        return Exit.FAILED if left else Exit.COMPLETED

    run(options.output, work)


def _tell(output: Output, found: workspace_pb2.CollectGarbageResponse, *, dry_run: bool) -> None:
    if output.as_json:
        for each in found.garbage:
            output.message(each)
    elif found.garbage:
        columns = ("what", "done", "project", "workspace", "why", "resource")
        output.table([_row(each, dry_run=dry_run) for each in found.garbage], columns, below=True)
    else:
        output.line("nothing to collect")
    for unasked in found.unasked:
        output.hint(f"provider {unasked.provider} cannot be asked: {unasked.cause}")


def _row(garbage: workspace_pb2.Garbage, *, dry_run: bool) -> tuple[str, ...]:
    kind = workspace_pb2.GarbageKind.Name(garbage.kind).removeprefix("GARBAGE_KIND_").lower()
    done = "not yet" if dry_run else "yes" if garbage.done else "no"
    return kind, done, garbage.project, garbage.workspace_id, garbage.cause, garbage.resource
