"""The program `moorage`."""

from __future__ import annotations

from typing import Annotated

import typer
from pydantic import ValidationError

from services.cli import commands_demo, commands_run, commands_session, commands_up
from services.cli.app import Context
from services.cli.output import Output
from services.cli.settings import ClientSettings

app = typer.Typer(
    no_args_is_help=True, pretty_exceptions_enable=False, help="A control plane for coding-agent sessions."
)


@app.callback()
def program(
    context: typer.Context,
    address: Annotated[
        str,
        typer.Option(
            envvar="MOORAGE_ADDRESS",
            help="HOST:PORT of the session service. Default: that of the `up` around this directory.",
        ),
    ] = "",
    project: Annotated[
        str, typer.Option(envvar="MOORAGE_PROJECT", help="The project to act in.")
    ] = "default",
) -> None:
    """Options of the whole program come before the command."""
    try:
        settings = ClientSettings(address=address, project=project)
    except ValidationError as error:
        raise typer.BadParameter(str(error)) from None
    context.obj = Context(Output(), settings)


app.command()(commands_up.up)
app.command()(commands_up.migrate)
app.command()(commands_demo.demo)
app.command()(commands_run.run)
app.command()(commands_run.watch)
app.add_typer(commands_session.app, name="session")


def main() -> None:
    """Entry point of the console script."""
    app()


if __name__ == "__main__":
    main()
