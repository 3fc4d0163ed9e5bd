"""`moorage migrate`: the schemas of a database."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from services.cli.app import Context, JsonOption, run
from services.cli.exits import Exit
from services.cli.options import DATABASE_VARIABLE, DatabaseOption
from services.cli.output import Output
from services.cli.stack import SCHEMAS
from services.common.migrations import migrate as apply
from services.common.migrations import pending


def migrate(
    context: typer.Context,
    database_url: DatabaseOption = "",
    password_file: Annotated[
        Path | None,
        typer.Option(
            "--database-password-file",
            envvar="MOORAGE_DATABASE_PASSWORD_FILE",
            help="A file with the password, where the URL names a user only.",
        ),
    ] = None,
    check: Annotated[
        bool, typer.Option("--check", help="Change nothing; exit 1 when something is pending.")
    ] = False,
    _json: JsonOption = False,
) -> None:
    """Bring the schemas of a database up to date."""
    options: Context = context.obj
    if not database_url:
        raise typer.BadParameter(f"give it, or set {DATABASE_VARIABLE}", param_hint="--database-url")
    url = _complete(database_url, password_file)

    async def work() -> Exit:
        revise = pending if check else apply
        outcome = {schema: await revise(url, schema) for schema in SCHEMAS}
        _tell(options.output, outcome, "pending" if check else "applied")
        return Exit.FAILED if check and any(outcome.values()) else Exit.COMPLETED

    run(options.output, work)


def _complete(url: str, password_file: Path | None) -> str:
    if not password_file:
        return url
    from services.common.settings import with_password  # noqa: PLC0415 (slow, and no other command needs it)

    try:
        return with_password(url, password_file)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--database-password-file") from None


def _tell(output: Output, outcome: dict[str, list[str]], verb: str) -> None:
    if output.as_json:
        output.document({verb: outcome})
        return
    for schema, revisions in outcome.items():
        output.line(f"{schema}: {verb} {', '.join(revisions)}" if revisions else f"{schema}: up to date")
