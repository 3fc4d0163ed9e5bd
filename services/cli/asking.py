"""Whether somebody who sits at a terminal means it."""

from __future__ import annotations

from typing import Annotated

import typer

from services.cli.exits import Exit
from services.cli.failures import CommandFailed
from services.cli.output import Output
from services.cli.questions import confirmed, has_terminal

YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask, as without a terminal.")]


class NotConfirmed(CommandFailed):
    """Nobody said yes; nothing was done."""

    exit = Exit.USAGE


async def confirm(output: Output, question: str, *, yes: bool) -> None:
    """Ask on a terminal, unless `yes`. Raises NotConfirmed. Programs, and scripts without a terminal, mean it."""
    if yes or output.as_json or not has_terminal():
        return
    if not await confirmed(f"{question} [y: do it, n: leave it] "):
        raise NotConfirmed("nothing was done")
