"""`moorage up`: the services on this machine."""

from __future__ import annotations

import asyncio
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from google.protobuf.json_format import MessageToDict
from moorage.workspace.v1 import workspace_pb2

from services.cli import containers
from services.cli.app import Context, JsonOption, run
from services.cli.database import (
    URL_VARIABLE,
    DatabaseAddress,
    DatabaseOption,
    DirectDatabaseOption,
    PasswordFileOption,
)
from services.cli.exits import Exit
from services.cli.failures import CommandFailed
from services.cli.options import checked
from services.cli.output import Output, folded
from services.cli.stack import PORTS, Stack, StackOptions, run_stack
from services.cli.state import find_running, state_directory
from services.cli.supervisor import ServiceFailed
from services.common.addresses import Address

_INDENT = 13


class ServedAbove(CommandFailed):
    """Commands in this directory find the services of a directory above it."""


def _check_listen(text: str) -> None:
    if not Address.parse(text).is_loopback:
        raise ValueError(f"{text} can be reached from other machines; `up` serves on loopback only")


def up(
    context: typer.Context,
    listen: Annotated[
        str,
        typer.Option(
            metavar="HOST:PORT",
            callback=checked(_check_listen),
            help="Where to serve clients. Default: 127.0.0.1:7801, or a free port if that is taken. "
            "With port 0 all services take free ports.",
        ),
    ] = "",
    database_url: DatabaseOption = "",
    direct_url: DirectDatabaseOption = "",
    password_file: PasswordFileOption = None,
    docker_image: Annotated[
        list[str] | None,
        typer.Option(
            metavar="IMAGE",
            help="Sessions may have containers of this image; repeatable, the first is the default one.",
        ),
    ] = None,
    separate: Annotated[
        bool, typer.Option("--separate", help="Also below a directory that another `moorage up` serves.")
    ] = False,
    _json: JsonOption = False,
) -> None:
    """Start the four services on loopback; agents may work below the current directory."""
    options: Context = context.obj
    root = Path.cwd()
    if (direct_url or password_file) and not database_url:
        raise typer.BadParameter(f"give it too, or set {URL_VARIABLE}", param_hint="--database-url")
    stack = StackOptions(
        root,
        state_directory(root),
        DatabaseAddress(database_url, direct_url, password_file),
        _addresses(listen),
        docker_image or [],
        (lambda _: None) if options.output.as_json else options.output.line,
    )
    run(options.output, lambda: _serve(options.output, stack, separate=separate))


async def _serve(output: Output, stack: StackOptions, *, separate: bool) -> Exit:
    if not separate:
        _refuse_below_another(stack.root)
    async with run_stack(stack) as running:
        _announce(output, running, await containers.allowed_at(running.running.workspace))
        try:
            return await running.during(_until_interrupted())
        except asyncio.CancelledError:
            output.hint("ending; Ctrl-C again does not wait for turns in progress")
            raise
        except ServiceFailed as failure:
            # At once: the others take a moment to end.
            output.hint(f"{failure.brief}; ending the others")
            raise


def _refuse_below_another(root: Path) -> None:
    above = find_running(root.parent)
    if above is not None and root.parent != root:
        raise ServedAbove(
            f"the `moorage up` of {above.root} serves this directory too (process {above.pid})",
            hint="`moorage run` uses it here; `moorage up --separate` starts services for this directory only",
        )


async def _until_interrupted() -> Exit:
    await asyncio.get_running_loop().create_future()
    return Exit.COMPLETED


def _addresses(listen: str) -> dict[str, str]:
    if not listen:
        return {}
    address = Address.parse(listen)
    return {"session": listen} if address.port else dict.fromkeys(PORTS, listen)


def _announce(output: Output, stack: Stack, docker: workspace_pb2.Provider | None) -> None:
    """`docker` where containers are allowed."""
    running = stack.running
    if output.as_json:
        output.document(asdict(running) | ({"docker": MessageToDict(docker)} if docker else {}))
        return
    output.line(f"Moorage serves {running.root}", "bold")
    output.table(
        [
            ("  session", running.session, "for clients"),
            ("", running.journal, "for runners"),
            ("  owner", running.owner, ""),
            ("  workspace", running.workspace, ""),
            ("  runner", running.runner, ""),
        ]
    )
    if docker:
        text, style = containers.brief(docker)
        output.line(folded(f"  docker     {text}", _INDENT), style)
    if stack.postgres:
        output.line(f"The database is in {stack.postgres.place}.")
    output.line(f"Logs are in {running.logs}. Ctrl-C ends everything.")
    output.line('Try `moorage run "say hello"` in another terminal, in this directory.')
