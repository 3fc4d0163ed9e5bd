"""What all commands share: the options of the whole program, and how errors become exit codes."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, NoReturn

import grpc
import typer

from services.cli.connection import Connection, connect
from services.cli.exits import SIGNALLED, Exit
from services.cli.failures import CommandFailed
from services.cli.interrupts import Interrupted, interruptible
from services.cli.output import Output
from services.cli.postgres.embedded import EmbeddedPostgresError
from services.cli.refusals import Refusal
from services.cli.state import find_running
from services.common.errors import MoorageError, StartupRefused

DEFAULT_ADDRESS = "127.0.0.1:7801"


@dataclass(frozen=True, slots=True)
class Context:
    """The program's options."""

    output: Output
    address: str
    project: str

    @property
    def target(self) -> str:
        """The session service to call: the one named, else that of the `up` around this directory."""
        return self._known or DEFAULT_ADDRESS

    @property
    def is_guess(self) -> bool:
        """Whether nothing says that this is the service that is meant."""
        return not self._known

    @property
    def elsewhere(self) -> str:
        """The address that is called, unless it is that of the `up` around this directory."""
        return self.target if self.address or self.is_guess else ""

    @property
    def _known(self) -> str:
        if self.address:
            return self.address
        running = find_running(Path.cwd())
        return running.session if running else ""


class NotNamed(CommandFailed):
    """The command is for one service only, and it was not said which."""

    exit = Exit.USAGE


def _choose_json(context: typer.Context, value: bool) -> bool:
    options: Context = context.obj
    options.output.as_json = value
    return value


JsonOption = Annotated[
    bool, typer.Option("--json", callback=_choose_json, help="Print JSON, one document a line.")
]
"""The last parameter of every command, named `_json`: its callback has done all there is to do."""


def call(
    context: Context, command: Callable[[Connection], Awaitable[Exit]], *, named: bool = False
) -> NoReturn:
    """Run a command that talks to the session service, and exit with its code.

    With `named` it is not run against a service that merely listens at the usual address.
    """

    async def connected() -> Exit:
        if context.is_guess:
            _tell_guess(context, named=named)
        namer = "--address or MOORAGE_ADDRESS" if context.address else ""
        async with connect(context.target, context.project, namer) as connection:
            return await command(connection)

    run(context.output, connected, context.elsewhere)


def _tell_guess(context: Context, *, named: bool) -> None:
    if named:
        raise NotNamed(
            "no `moorage up` runs here, and this command asks for certainty",
            hint=f"--address {DEFAULT_ADDRESS} before the command, or MOORAGE_ADDRESS, names a service",
        )
    context.output.hint(f"no `moorage up` runs here; using {DEFAULT_ADDRESS}")


def run(output: Output, command: Callable[[], Awaitable[Exit]], elsewhere: str = "") -> NoReturn:
    """Run a command, and exit with its code; what can go wrong becomes one line and a code.

    `elsewhere`: see Refusal.
    """
    try:
        code = int(asyncio.run(interruptible(command)))
    except Interrupted as interrupted:
        code = SIGNALLED + interrupted.number
    except CommandFailed as failure:
        output.error(str(failure), failure.hint)
        code = failure.exit
    except grpc.aio.AioRpcError as error:
        refusal = Refusal(error, elsewhere)
        # A command adds as notes what it has to say about an error.
        hints = (refusal.hint, *getattr(error, "__notes__", ()))
        output.error(refusal.line(), "\n".join(filter(None, hints)), refusal.document())
        code = refusal.exit
    except (MoorageError, StartupRefused, EmbeddedPostgresError) as error:
        output.error(str(error))
        code = Exit.FAILED
    raise typer.Exit(code)
