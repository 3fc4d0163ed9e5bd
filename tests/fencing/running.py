"""A lease loop that runs, and owner processes that are ready for it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

from services.common.channels import open_channel
from services.common.clock import SystemClock
from services.fencing.loop import LeaseLoop
from tests.owner.processes import SERVING, OwnerProcess, owner_process


@contextlib.asynccontextmanager
async def ready_owner(database_url: str, listen: str = "127.0.0.1:0") -> AsyncIterator[OwnerProcess]:
    """A process that can grant."""
    async with owner_process("--listen", listen, "--database-url", database_url) as owner:
        await owner.until_serving()
        await owner.until_health(SERVING)
        yield owner


@contextlib.asynccontextmanager
async def holding(target: str) -> AsyncIterator[LeaseLoop]:
    """The leases of one holder, renewed within the block."""
    async with open_channel(target) as channel:
        leases = LeaseLoop("runner/1", channel, SystemClock())
        running = asyncio.create_task(leases.run())
        yield leases
        running.cancel()
        await asyncio.wait({running})
