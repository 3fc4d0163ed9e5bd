"""`moorage diff`: what a turn changed in the git repository that it worked in."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Annotated

import typer

from services.cli import baselines
from services.cli.app import Context, JsonOption, run
from services.cli.exits import Exit
from services.cli.failures import CommandFailed
from services.cli.output import Output

_STYLES = (
    ("diff ", "bold"),
    ("+++", "bold"),
    ("---", "bold"),
    ("@@", "cyan"),
    ("+", "green"),
    ("-", "red"),
)


class NotComparable(CommandFailed):
    """git cannot compare."""


def diff(
    context: typer.Context,
    turn: Annotated[
        str, typer.Option(metavar="TURN", help="Since this turn began. Default: the newest one.")
    ] = "",
    stat: Annotated[bool, typer.Option(help="Only name the files.")] = False,
    _json: JsonOption = False,
) -> None:
    """Show what has changed in this git repository since a turn of `moorage run` began here."""
    options: Context = context.obj

    async def work() -> Exit:
        directory = Path.cwd()
        baseline = baselines.find(directory, turn)
        now = baselines.take(directory)
        if not now:
            raise NotComparable(f"{directory} is in no git repository that can be read")
        if options.output.as_json:
            options.output.document(
                {
                    "turnId": baseline.turn_id,
                    "before": baseline.tree,
                    "after": now,
                    "files": _files(baseline.tree, now),
                }
            )
        else:
            _show(options.output, baseline.tree, now, stat=stat)
        return Exit.COMPLETED

    run(options.output, work)


def _show(output: Output, before: str, after: str, *, stat: bool) -> None:
    text = _compare(*(["--stat"] if stat else []), before, after)
    if not text:
        output.hint("nothing has changed")
    for line in text.splitlines():
        output.line(line, next((style for start, style in _STYLES if line.startswith(start)), ""))


def _files(before: str, after: str) -> list[dict[str, str]]:
    fields = _compare("--name-status", "--no-renames", "-z", before, after).split("\0")
    return [
        {"status": status, "path": path}
        for status, path in zip(fields[::2], fields[1::2], strict=False)
        if path
    ]


def _compare(*arguments: str) -> str:
    ended = subprocess.run(
        ("git", "diff", "--no-color", "--no-ext-diff", *arguments),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    if ended.returncode:
        raise NotComparable(ended.stderr.strip() or "git failed")
    return ended.stdout
