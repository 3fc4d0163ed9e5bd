"""Prompts that were refused: kept, so that nobody has to type them again."""

from __future__ import annotations

import os
import shlex
import time
from pathlib import Path

from services.cli.failures import CommandFailed
from services.cli.state import state_directory

_KEPT = 20


class NoPrompt(CommandFailed):
    """There is nothing to tell the agent."""


def keep(directory: Path, prompt: str) -> Path | None:
    """The file that now holds the prompt; None where none can be written. Older ones are forgotten."""
    place = state_directory(directory) / "refused"
    try:
        place.mkdir(parents=True, exist_ok=True, mode=0o700)
        file = place / f"{time.time_ns()}.txt"
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8") as opened:
            opened.write(prompt)
        for old in sorted(place.glob("*.txt"))[:-_KEPT]:
            old.unlink(missing_ok=True)
    except OSError:
        return None
    return file


def retry(file: Path, session: str) -> str:
    """The command that tells it again."""
    chosen = f" --session {shlex.quote(session)}" if session else ""
    return f"moorage run{chosen} --prompt-file {shlex.quote(str(file))}"


def read(file: Path) -> str:
    """The prompt of a file; `-` is standard input."""
    try:
        return (
            Path("/dev/stdin").read_text(encoding="utf-8")
            if str(file) == "-"
            else file.read_text(encoding="utf-8")
        )
    except (OSError, UnicodeDecodeError) as error:
        raise NoPrompt(f"{file} cannot be read: {error}") from error
