"""What a command tells when it cannot do its work: a text for people, a hint, an exit code."""

from __future__ import annotations

from typing import ClassVar

from services.cli.exits import Exit


class CommandFailed(Exception):
    """The text says what went wrong, in one line unless it quotes a log."""

    exit: ClassVar[Exit] = Exit.FAILED

    def __init__(self, text: str, *, hint: str = "") -> None:
        """`hint` says what to do next."""
        super().__init__(text)
        self.hint = hint
