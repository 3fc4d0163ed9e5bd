"""The check of agents as a process of its own: it is the runner's, and the program starts, but does not import, services."""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
from collections.abc import AsyncGenerator, Sequence
from typing import Any, Final

from services.cli.exits import Exit
from services.cli.failures import CommandFailed

_MODULE: Final = "services.runner.verify"


class NotVerified(CommandFailed):
    """The check could not be made."""

    exit = Exit.USAGE


async def findings(arguments: Sequence[str]) -> AsyncGenerator[dict[str, Any], None]:
    """What it finds, as it comes; raises NotVerified."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", _MODULE, *arguments, stdout=asyncio.subprocess.PIPE
    )
    try:
        async for document in _documents(process):
            if "error" in document:
                raise NotVerified(document["error"])
            yield document
        if await process.wait() not in (Exit.COMPLETED, Exit.FAILED):
            raise NotVerified("the check ended before its time")
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.terminate()
        await process.wait()


async def _documents(process: asyncio.subprocess.Process) -> AsyncGenerator[dict[str, Any], None]:
    if process.stdout is not None:
        async for line in process.stdout:
            yield json.loads(line)
