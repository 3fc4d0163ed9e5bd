"""Prompts that were refused: kept, so that nobody has to type them again."""

from __future__ import annotations

import os
import shlex
import time
from pathlib import Path

import grpc

from services.cli.exits import Exit
from services.cli.failures import CommandFailed
from services.cli.refusals import Refusal
from services.cli.state import state_directory

_KEPT = 20
# The same words again are refused again.
_HOPELESS = (grpc.StatusCode.NOT_FOUND, grpc.StatusCode.INVALID_ARGUMENT)


class NoPrompt(CommandFailed):
    """There is nothing to tell the agent."""

    exit = Exit.USAGE


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


def note(error: grpc.aio.AioRpcError, words: str, session: str) -> None:
    """Keep a refused prompt where trying again can help, and add to the error how."""
    refusal = Refusal(error)
    if not words.strip() or refusal.code in _HOPELESS or refusal.reason == "SESSION_CLOSED":
        return
    if file := keep(Path.cwd(), words):
        error.add_note(f"the prompt is kept; to try again: {retry(file, session)}")


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
        cause = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise NoPrompt(f"{file} cannot be read: {cause}") from error
