"""The program `moorage`."""

from __future__ import annotations

import importlib.metadata
import itertools
import sys
from typing import Annotated, Final, NoReturn, TextIO

import typer

from services.cli.app import Context
from services.cli.commands import (
    approval,
    demo,
    diff,
    doctor,
    down,
    history,
    leases,
    migrate,
    run,
    runner,
    session,
    takeover,
    turns,
    up,
    verify,
    workspaces,
)
from services.cli.exits import Exit
from services.cli.options import check_target, checked
from services.cli.output import Output
from services.cli.program import Program
from services.common.validation import DEFAULT_PROJECT, check_project

_JSON: Final = "--json"

app = typer.Typer(
    cls=Program,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="A control plane for coding-agent sessions.",
)


def _tell_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"moorage {importlib.metadata.version('moorage')}")
        raise typer.Exit


@app.callback()
def program(
    context: typer.Context,
    address: Annotated[
        str,
        typer.Option(
            # The second one is what a deployment tells its services.
            envvar=["MOORAGE_ADDRESS", "MOORAGE_SESSION_ADDRESS"],
            metavar="HOST:PORT",
            callback=checked(check_target),
            help="The session service. Default: that of the `up` around this directory, else 127.0.0.1:7801.",
        ),
    ] = "",
    project: Annotated[
        str,
        typer.Option(
            envvar="MOORAGE_PROJECT",
            metavar="NAME",
            callback=checked(check_project),
            help="The project to act in.",
        ),
    ] = DEFAULT_PROJECT,
    _version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_tell_version, help="Print the version.")
    ] = False,
) -> None:
    """Options of the whole program come before the command."""
    context.obj = Context(Output(), address, project or DEFAULT_PROJECT)


app.command()(up.up)
app.command()(down.down)
app.command()(migrate.migrate)
app.command()(demo.demo)
app.command()(run.run)
app.command()(run.watch)
app.command()(turns.stop)
app.command()(turns.answer)
app.command()(diff.diff)
app.add_typer(approval.app, name="approval")
session.app.command()(takeover.takeover)
app.add_typer(session.app, name="session")
app.add_typer(history.turn_app, name="turn")
app.add_typer(history.command_app, name="command")
app.add_typer(leases.lease_app, name="lease")
app.add_typer(workspaces.app, name="workspace")
app.add_typer(runner.runner_app, name="runner")
app.command()(doctor.doctor)
app.add_typer(verify.app, name="verify")


def main() -> None:
    """Entry point of the console script."""
    for stream in (sys.stdout, sys.stderr):
        _show_what_it_can(stream)
    # What comes after is text, a prompt for instance.
    if _JSON in itertools.takewhile(lambda argument: argument != "--", sys.argv):
        _run_for_programs()
    app()


def _run_for_programs() -> NoReturn:
    """What is wrong with the arguments is a document, as every other error is."""
    try:
        code = app(standalone_mode=False)
    except Exception as error:
        told = getattr(error, "format_message", None)
        if told is None:
            raise
        Output(as_json=True).error(" ".join(told().split()))
        sys.exit(Exit.USAGE)
    sys.exit(code)


def _show_what_it_can(stream: TextIO) -> None:
    """A terminal that lacks a character gets a question mark instead of an error."""
    reconfigure = getattr(stream, "reconfigure", None)
    if reconfigure:
        reconfigure(errors="replace")


if __name__ == "__main__":
    main()
