"""What is parked: how many, for how long, who goes first, and that nobody is taken and retired (T8)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from services.common.clock import ManualClock
from services.runner.endings import TurnAbandoned
from services.runner.park import Park

WINDOW = 600.0


class Tenant:
    """Something parked that says what is done to it."""

    def __init__(self, clock: ManualClock, name: str) -> None:
        self.resource = f"projects/p/sessions/{name}"
        self.used_at = clock.boottime()
        self.dead = asyncio.Event()
        self.may_leave = asyncio.Event()
        self.may_leave.set()
        self.retired = 0
        self.was_cut = False
        self.lose: Callable[[TurnAbandoned], None] | None = None

    def watched_by(self, watcher: Callable[[TurnAbandoned], None]) -> None:
        self.lose = watcher

    async def died(self) -> None:
        await self.dead.wait()

    async def retire(self) -> None:
        self.retired += 1
        await self.may_leave.wait()

    async def abandon(self) -> None:
        self.was_cut = True


@pytest.fixture
def clock() -> ManualClock:
    """It stands still."""
    return ManualClock()


@asynccontextmanager
async def running(clock: ManualClock, limit: int = 20) -> AsyncIterator[Park[Tenant]]:
    """A park that works."""
    park: Park[Tenant] = Park(clock, limit=limit, window=WINDOW)
    task = asyncio.create_task(park.run())
    await settled()
    yield park
    task.cancel()
    await asyncio.wait({task})


async def settled() -> None:
    """Let everybody run who can."""
    for _ in range(20):
        await asyncio.sleep(0)


async def test_a_tenant_stays_for_its_window_counted_from_its_last_turn(clock: ManualClock) -> None:
    async with running(clock) as park:
        tenant = Tenant(clock, "a")
        await clock.advance(100)
        park.put(tenant)
        await clock.advance(WINDOW - 101)
        assert (len(park), tenant.retired) == (1, 0)
        await clock.advance(2)
        assert (len(park), tenant.retired) == (0, 1)


async def test_one_that_is_taken_and_put_back_has_no_more_time_than_before(clock: ManualClock) -> None:
    async with running(clock) as park:
        tenant = Tenant(clock, "a")
        park.put(tenant)
        await clock.advance(WINDOW - 1)
        assert park.take(tenant.resource) is tenant
        await clock.advance(0.5)
        park.put(tenant)
        await clock.advance(1)
        assert tenant.retired == 1


async def test_those_unused_for_longest_make_room(clock: ManualClock) -> None:
    async with running(clock, limit=2) as park:
        tenants = []
        for name in ("a", "b", "c", "d"):
            tenants.append(Tenant(clock, name))
            await clock.advance(1)
        for tenant in (tenants[1], tenants[0], tenants[3], tenants[2]):
            park.put(tenant)
        await settled()
        assert [tenant.retired for tenant in tenants] == [1, 1, 0, 0]
        assert len(park) == 2


async def test_one_whose_agent_dies_leaves(clock: ManualClock) -> None:
    async with running(clock) as park:
        first, second = Tenant(clock, "a"), Tenant(clock, "b")
        park.put(first)
        park.put(second)
        first.dead.set()
        await settled()
        assert (first.retired, second.retired) == (1, 0)
        assert park.take(first.resource) is None


async def test_one_that_loses_its_lease_leaves_and_news_that_come_late_touch_no_successor(
    clock: ManualClock,
) -> None:
    async with running(clock) as park:
        first = Tenant(clock, "a")
        park.put(first)
        assert first.lose is not None
        first.lose(TurnAbandoned("lost"))
        await settled()
        successor = Tenant(clock, "a")
        park.put(successor)
        first.lose(TurnAbandoned("lost"))
        first.dead.set()
        await settled()
        assert (first.retired, successor.retired) == (1, 0)


async def test_one_that_is_taken_in_the_moment_of_its_end_is_not_retired(clock: ManualClock) -> None:
    async with running(clock) as park:
        tenant = Tenant(clock, "a")
        park.put(tenant)
        await settled()
        tenant.dead.set()
        assert park.take(tenant.resource) is tenant
        await settled()
        await clock.advance(WINDOW * 2)
        assert tenant.retired == 0


async def test_whoever_comes_meanwhile_can_wait_until_it_has_left(clock: ManualClock) -> None:
    async with running(clock) as park:
        tenant = Tenant(clock, "a")
        tenant.may_leave.clear()
        park.put(tenant)
        park.dismiss(tenant.resource, "test")
        assert park.take(tenant.resource) is None
        assert park.is_leaving(tenant.resource)
        waiting = asyncio.create_task(park.until_left(tenant.resource))
        await settled()
        assert not waiting.done()
        tenant.may_leave.set()
        await waiting
        assert not park.is_leaving(tenant.resource)


async def test_a_closed_park_is_empty_and_takes_nobody(clock: ManualClock) -> None:
    async with running(clock) as park:
        tenants = [Tenant(clock, name) for name in ("a", "b")]
        for tenant in tenants:
            park.put(tenant)
        await park.close()
        assert [tenant.retired for tenant in tenants] == [1, 1]
        assert not park.is_open
        with pytest.raises(RuntimeError):
            park.put(Tenant(clock, "c"))


async def test_a_park_without_room_is_never_open(clock: ManualClock) -> None:
    async with running(clock, limit=0) as park:
        assert not park.is_open


async def test_a_park_that_is_cut_off_leaves_no_agent(clock: ManualClock) -> None:
    tenant = Tenant(clock, "a")
    async with running(clock) as park:
        park.put(tenant)
    assert tenant.was_cut
