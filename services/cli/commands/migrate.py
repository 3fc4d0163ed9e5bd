"""`moorage migrate`: the schemas of a database."""

from __future__ import annotations

from typing import Annotated

import typer

from services.cli.app import Context, JsonOption, run
from services.cli.database import (
    URL_VARIABLE,
    DatabaseAddress,
    DatabaseOption,
    DirectDatabaseOption,
    PasswordFileOption,
)
from services.cli.exits import Exit
from services.cli.output import Output
from services.cli.stack import SCHEMAS
from services.common.migrations import migrate as apply
from services.common.migrations import pending


def migrate(
    context: typer.Context,
    database_url: DatabaseOption = "",
    direct_url: DirectDatabaseOption = "",
    password_file: PasswordFileOption = None,
    check: Annotated[
        bool, typer.Option("--check", help="Change nothing; exit 1 when something is pending.")
    ] = False,
    _json: JsonOption = False,
) -> None:
    """Bring the schemas of a database up to date."""
    options: Context = context.obj
    url = DatabaseAddress(database_url, direct_url, password_file).for_migrations()
    if not url:
        raise typer.BadParameter(f"give it, or set {URL_VARIABLE}", param_hint="--database-url")

    async def work() -> Exit:
        revise = pending if check else apply
        outcome = {schema: await revise(url, schema) for schema in SCHEMAS}
        _tell(options.output, outcome, "pending" if check else "applied")
        return Exit.FAILED if check and any(outcome.values()) else Exit.COMPLETED

    run(options.output, work)


def _tell(output: Output, outcome: dict[str, list[str]], verb: str) -> None:
    if output.as_json:
        output.document({verb: outcome})
        return
    for schema, revisions in outcome.items():
        output.line(f"{schema}: {verb} {', '.join(revisions)}" if revisions else f"{schema}: up to date")
