"""Whether it is meant, where something cannot be taken back."""

from __future__ import annotations

from typing import Annotated

import typer

from services.cli.exits import Exit
from services.cli.failures import CommandFailed
from services.cli.output import Output
from services.cli.questions import confirmed, has_terminal

YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]


class NotConfirmed(CommandFailed):
    """Nobody said yes; nothing was done."""

    exit = Exit.USAGE


async def confirm(output: Output, question: str, *, yes: bool) -> None:
    """Ask on a terminal, unless `yes`; who cannot be asked has to say it. Raises NotConfirmed."""
    if yes:
        return
    if output.as_json or not has_terminal():
        raise NotConfirmed(f"nobody can be asked: {question}", hint="--yes says that it is meant")
    if not await confirmed(f"{question} [y: do it, n: leave it] "):
        raise NotConfirmed("nothing was done")
