"""The program's commands together: what their help looks like, and how they say what is wrong with arguments."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import typer
from typer.core import TyperGroup

from services.common.validation import in_own_words


class Program(TyperGroup):
    """Values are converted by pydantic, whose words are not for who typed them."""

    def make_context(self, *arguments: Any, **named: Any) -> Any:
        """Read the program's own options."""
        with _plain():
            return super().make_context(*arguments, **named)

    def invoke(self, ctx: Any) -> Any:
        """Read those of a command, and run it."""
        with _plain():
            return super().invoke(ctx)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """One of them, by its name."""
        command = super().get_command(ctx, cmd_name)
        _reflow(command)
        return command


def _reflow(command: Any) -> None:
    """Paragraphs of its help are as wide as the terminal, not as the source: a line's end is a space."""
    if text := getattr(command, "help", None):
        command.help = "\n\n".join(" ".join(each.split()) for each in text.split("\n\n"))
    for below in getattr(command, "commands", {}).values():
        _reflow(below)


@contextlib.contextmanager
def _plain() -> Iterator[None]:
    try:
        yield
    except typer.BadParameter as error:
        error.message = in_own_words(error.message)
        raise
