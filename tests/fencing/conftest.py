"""A scripted owner, a clock turned by hand, and a lease loop that runs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import grpc
import pytest

from services.common.clock import ManualClock
from services.fencing.loop import LeaseLoop
from tests.fencing.scripted import START, ScriptedOwner, serving


@pytest.fixture
def owner() -> ScriptedOwner:
    """Does as the test says."""
    return ScriptedOwner()  # type: ignore[abstract]  # nobody here calls the reads


@pytest.fixture
async def channel(owner: ScriptedOwner) -> AsyncIterator[grpc.aio.Channel]:
    """To the scripted owner."""
    async with serving(owner) as channel:
        yield channel


@pytest.fixture
def clock() -> ManualClock:
    """Stands still at START."""
    return ManualClock(now=START)


@pytest.fixture
async def leases(channel: grpc.aio.Channel, clock: ManualClock) -> AsyncIterator[LeaseLoop]:
    """The loop of a process, running."""
    loop = LeaseLoop("runner/1", channel, clock)
    running = asyncio.create_task(loop.run())
    yield loop
    assert not running.done(), "the loop ended by itself"
    running.cancel()
    await asyncio.wait({running})
