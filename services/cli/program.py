"""The program's commands together, and how they say what is wrong with their arguments."""

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


@contextlib.contextmanager
def _plain() -> Iterator[None]:
    try:
        yield
    except typer.BadParameter as error:
        error.message = in_own_words(error.message)
        raise
