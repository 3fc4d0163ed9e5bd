"""Replicas of the session service as processes of their own."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import AsyncIterator

from tests.session.places import FREE, Places

_PATIENCE = 30.0


@contextlib.asynccontextmanager
async def session_process(places: Places, *flags: str, **environment: str) -> AsyncIterator[str]:
    """A ready replica in a process; gives the clients' endpoint."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", "services.session", "--listen", FREE, "--journal-listen", FREE),
        *("--owner-address", places.owner_address, "--workspace-address", places.workspace_address),
        *flags,
        stdin=DEVNULL,
        stderr=PIPE,
        env={**os.environ, "MOORAGE_DATABASE_URL": places.database_url, **environment},
    )
    try:
        async with asyncio.timeout(_PATIENCE):
            endpoint = await _until_ready(process)
        draining = asyncio.create_task(_drain(process))
        yield endpoint
    finally:
        if process.returncode is None:
            process.terminate()
        await process.wait()
    await draining


async def _until_ready(process: Process) -> str:
    """The endpoint of the main listener, which is the first one told, once the service is ready."""
    endpoint = ""
    while line := await _line(process):
        told = json.loads(line)
        if told["event"] == "serving":
            endpoint = endpoint or told["endpoint"]
        if told["event"] == "ready":
            return endpoint
    raise AssertionError(f"the service ended with {await process.wait()}")


async def _drain(process: Process) -> None:
    """Read on, so that the process never waits for us."""
    while await _line(process):
        pass


async def _line(process: Process) -> bytes:
    assert process.stderr is not None
    return await process.stderr.readline()
