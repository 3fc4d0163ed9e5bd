"""What all commands share: the options of the whole program, and how errors become exit codes."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import grpc
import typer

from services.cli.connection import Connection, connect
from services.cli.exits import Exit
from services.cli.output import Output
from services.cli.ports import PortTaken
from services.cli.postgres import EmbeddedPostgresError
from services.cli.settings import ClientSettings
from services.cli.state import AlreadyRunning
from services.cli.supervisor import ServiceFailed
from services.cli.turns import Cut
from services.common.errors import MoorageError
from services.common.status import from_rpc_error

EXPECTED = (MoorageError, ServiceFailed, AlreadyRunning, PortTaken, EmbeddedPostgresError)


@dataclass(frozen=True, slots=True)
class Context:
    """The program's options."""

    output: Output
    settings: ClientSettings

    @property
    def target(self) -> str:
        """The session service's address."""
        return self.settings.target(Path.cwd())


def _choose_json(context: typer.Context, value: bool) -> bool:
    options: Context = context.obj
    options.output.as_json = value
    return value


JsonOption = Annotated[
    bool, typer.Option("--json", callback=_choose_json, help="Print JSON, one document a line.")
]
"""The last parameter of every command, named `_json`: its callback has done all there is to do."""


def call(context: Context, command: Callable[[Connection], Awaitable[Exit]]) -> None:
    """Run a command that talks to the session service, and exit with its code."""

    async def connected() -> Exit:
        async with connect(context.target, context.settings.project) as connection:
            return await command(connection)

    run(context.output, connected)


def run(output: Output, command: Callable[[], Awaitable[Exit]]) -> None:
    """Run a command; what can go wrong becomes one line and an exit code."""

    async def main() -> Exit:
        return await command()

    try:
        raise typer.Exit(asyncio.run(main()))
    except Cut as cut:
        output.error(str(cut))
        raise typer.Exit(Exit.CUT) from None
    except grpc.aio.AioRpcError as error:
        raise typer.Exit(_refused(output, from_rpc_error(error), error.code())) from None
    except EXPECTED as error:
        output.error(str(error))
        raise typer.Exit(Exit.FAILED) from None


def _refused(output: Output, error: MoorageError, code: grpc.StatusCode) -> Exit:
    fields = "".join(f"\n  {violation.field}: {violation.description}" for violation in error.violations)
    output.error(f"{error} ({code.name}, {error.reason_name}){fields}")
    if code is grpc.StatusCode.INVALID_ARGUMENT:
        return Exit.USAGE
    return Exit.CUT if code is grpc.StatusCode.UNAVAILABLE else Exit.FAILED
