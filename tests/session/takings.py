"""Takers at work for the tests of watchdog, takeover and sweep, with a real owner."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Coroutine
from datetime import UTC, datetime

import grpc
from moorage.owner.v1 import lease_pb2

from services.common.channels import Channels
from services.common.clock import SystemClock
from services.fencing.loop import LeaseLoop, mint_holder
from services.session.clients import Workspaces
from services.session.recovery.taking import Taker
from tests.session.desks import Desk, Holder
from tests.session.fake_workspaces import FakeWorkspace
from tests.session.leasing import Taker as LeaseTaker

SERVICE_LEASE = 2.0


@contextlib.asynccontextmanager
async def at_work(*works: Coroutine[None, None, None]) -> AsyncIterator[None]:
    """Run them beside the block, and cancel them at its end."""
    tasks = [asyncio.create_task(work) for work in works]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)


@contextlib.asynccontextmanager
async def taking(
    desk: Desk, owner: grpc.aio.Channel, workspace: FakeWorkspace, *, fence_timeout: float = 1.0
) -> AsyncIterator[tuple[Taker, LeaseLoop]]:
    """A replica's taker, and the leases that it holds."""
    loop = LeaseLoop(mint_holder("session"), owner, SystemClock())
    async with Channels() as channels, at_work(loop.run()):
        yield (
            Taker(
                desk.journal,
                Workspaces(channels, workspace.endpoint),
                loop,
                SystemClock(),
                lease_ttl=SERVICE_LEASE,
                fence_timeout=fence_timeout,
                max_clock_skew=0.2,
            ),
            loop,
        )


async def held(
    desk: Desk,
    taker: LeaseTaker,
    session_id: str = "s1",
    *,
    turn_id: str = "t1",
    name: str = "runner/1",
    ttl: float = 2.0,
    endpoint: str = "",
) -> tuple[Holder, lease_pb2.Lease]:
    """A session with an admitted turn, and its holder, whose lease nobody renews."""
    await desk.session(session_id)
    await desk.turn(turn_id, session_id)
    answer = await taker.session(session_id, name, ttl=ttl, endpoint=endpoint)
    holder = desk.holder(session_id, shown=answer.grant, token=answer.lease.token, name=name, turn_id=turn_id)
    return holder, answer.lease


async def is_over(desk: Desk, session_id: str = "s1", turn_id: str = "t1") -> bool:
    """Whether a turn has ended."""
    return not (await desk.read_turn(turn_id, session_id)).state.in_progress


def end_of(lease: lease_pb2.Lease) -> datetime:
    """When a lease ends, or should have ended."""
    return lease.expire_time.ToDatetime(tzinfo=UTC)
