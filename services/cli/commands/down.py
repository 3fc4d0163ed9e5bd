"""`moorage down`: ends the `moorage up` around this directory."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time
from pathlib import Path
from typing import Annotated

import typer

from services.cli.app import Context, JsonOption, run
from services.cli.exits import Exit
from services.cli.failures import CommandFailed
from services.cli.state import Running, find_running, is_served, state_directory

_POLL = 0.05


class NothingUp(CommandFailed):
    """No `moorage up` serves this directory."""


class StillUp(CommandFailed):
    """It did not end in time."""


def down(
    context: typer.Context,
    now: Annotated[bool, typer.Option("--now", help="Do not wait for turns in progress.")] = False,
    timeout: Annotated[
        float, typer.Option(min=1, metavar="SECONDS", help="How long to wait for its end.")
    ] = 90.0,
    _json: JsonOption = False,
) -> None:
    """End the `moorage up` of this directory, or of the nearest one above, and wait until it has ended."""
    options: Context = context.obj
    here = Path.cwd()

    async def work() -> Exit:
        running = find_running(here)
        if running is None:
            raise NothingUp(f"no `moorage up` serves {here}")
        await _end(running, timeout, now=now)
        if options.output.as_json:
            options.output.document({"ended": {"pid": running.pid, "root": running.root}})
        else:
            options.output.line(f"the `moorage up` of {running.root} has ended")
        return Exit.COMPLETED

    run(options.output, work)


async def _end(running: Running, timeout: float, *, now: bool) -> None:
    """As Ctrl-C does there; a second one hurries."""
    until = time.monotonic() + timeout
    # It may have ended since it was found, or after the first one.
    with contextlib.suppress(ProcessLookupError):
        for _ in range(2 if now else 1):
            os.kill(running.pid, signal.SIGTERM)
            await asyncio.sleep(_POLL)
    state = state_directory(Path(running.root))
    while is_served(state):
        if time.monotonic() > until:
            raise StillUp(
                f"process {running.pid} is still ending after {timeout:g} s",
                hint="`moorage down --now` does not wait for turns in progress",
            )
        await asyncio.sleep(_POLL)
