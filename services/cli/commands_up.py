"""`moorage up` and `moorage migrate`: the services on this machine, and a database's schemas."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path
from typing import Annotated

import typer

from services.cli.app import Context, JsonOption, run
from services.cli.exits import Exit
from services.cli.stack import SCHEMAS, Stack, StackOptions, run_stack
from services.cli.state import state_directory
from services.common.migrations import migrate as migrate_schema
from services.common.migrations import pending

DATABASE_VARIABLE = "MOORAGE_DATABASE_URL"

DatabaseOption = Annotated[
    str | None,
    typer.Option(envvar=DATABASE_VARIABLE, show_envvar=True, help="postgresql://… of the database."),
]


def up(
    context: typer.Context,
    listen: Annotated[
        str | None, typer.Option(help="HOST:PORT for clients. Default: 127.0.0.1:7801 or a free port.")
    ] = None,
    database_url: DatabaseOption = None,
    state: Annotated[
        Path | None, typer.Option(help="Where data and logs go. Default: below $XDG_STATE_HOME.")
    ] = None,
    _json: JsonOption = False,
) -> None:
    """Start the four services on loopback; agents may work below the current directory."""
    options: Context = context.obj
    root = Path.cwd()
    stack = StackOptions(
        root=root,
        state=(state or state_directory(root)).absolute(),
        database_url=database_url,
        listen={"session": listen} if listen else {},
    )

    async def serve() -> Exit:
        async with run_stack(stack) as running:
            _announce(options, running)
            await _until_told(running)
        return Exit.COMPLETED

    run(options.output, serve)


def migrate(
    context: typer.Context,
    database_url: DatabaseOption = None,
    check: Annotated[
        bool, typer.Option("--check", help="Change nothing; exit 1 when something is pending.")
    ] = False,
    _json: JsonOption = False,
) -> None:
    """Bring the schemas of a database up to date."""
    options: Context = context.obj
    if not database_url:
        raise typer.BadParameter(f"give --database-url or {DATABASE_VARIABLE}")

    async def work() -> Exit:
        outcome = {schema: await _migrate_one(database_url, schema, check=check) for schema in SCHEMAS}
        if options.output.as_json:
            options.output.document({"pending" if check else "applied": outcome})
        else:
            _tell(options, outcome, check=check)
        return Exit.FAILED if check and any(outcome.values()) else Exit.COMPLETED

    run(options.output, work)


async def _migrate_one(database_url: str, schema: str, *, check: bool) -> list[str]:
    return await (pending if check else migrate_schema)(database_url, schema)


def _tell(options: Context, outcome: dict[str, list[str]], *, check: bool) -> None:
    verb = "pending" if check else "applied"
    for schema, revisions in outcome.items():
        options.output.line(
            f"{schema}: {verb} {', '.join(revisions)}" if revisions else f"{schema}: up to date"
        )


def _announce(options: Context, stack: Stack) -> None:
    running = stack.running
    if options.output.as_json:
        options.output.document({name: getattr(running, name) for name in running.__dataclass_fields__})
        return
    options.output.line(f"Moorage serves {running.root}", "bold")
    options.output.table(
        ("service", "address"),
        [
            ("session (clients)", running.session),
            ("session (journal)", running.journal),
            ("owner", running.owner),
            ("workspace", running.workspace),
            ("runner", running.runner),
        ],
    )
    options.output.line(f"Logs are in {stack.logs}. Ctrl-C ends everything.")


async def _until_told(stack: Stack) -> None:
    told = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, told.set)
    failure = asyncio.ensure_future(stack.supervisor.wait_failure())
    waiting = asyncio.ensure_future(told.wait())
    try:
        done, _ = await asyncio.wait({failure, waiting}, return_when=asyncio.FIRST_COMPLETED)
        if failure in done:
            failure.result()
    finally:
        failure.cancel()
        waiting.cancel()
