"""The clock that tests turn by hand, and the machine's."""

from __future__ import annotations

import asyncio

from services.common.clock import Clock, ManualClock, SystemClock

Log = list[tuple[str, float]]


async def remember(clock: Clock, seconds: float, name: str, log: Log) -> None:
    await clock.sleep(seconds)
    log.append((name, clock.boottime()))


async def test_an_advance_fires_timers_before_it_returns_in_their_order() -> None:
    clock, log = ManualClock(boottime=0), Log()
    sleepers = [asyncio.create_task(remember(clock, after, str(after), log)) for after in (3, 1, 2)]
    await clock.advance(2.5)
    assert log == [("1", 1), ("2", 2)]
    assert clock.boottime() == 2.5
    await clock.advance(0.5)
    assert log[2:] == [("3", 3)]
    await asyncio.gather(*sleepers)


async def test_a_loop_fires_as_often_as_time_passes() -> None:
    clock, ticks = ManualClock(boottime=0), list[float]()

    async def tick() -> None:
        while True:
            await clock.sleep(10)
            ticks.append(clock.boottime())

    ticking = asyncio.create_task(tick())
    await clock.advance(35)
    assert ticks == [10, 20, 30]
    ticking.cancel()


async def test_a_cancelled_sleeper_does_not_wake() -> None:
    clock, log = ManualClock(), Log()
    sleeper = asyncio.create_task(remember(clock, 1, "cancelled", log))
    await clock.until_sleeping()
    sleeper.cancel()
    await clock.advance(5)
    assert log == []
    assert clock.sleepers == 0


async def test_waiting_until_others_sleep() -> None:
    clock, log = ManualClock(boottime=0), Log()

    async def later() -> None:
        for _ in range(100):
            await asyncio.sleep(0)
        await remember(clock, 1, "later", log)

    task = asyncio.create_task(later())
    await clock.until_sleeping(1)
    await clock.advance(1)
    assert log == [("later", 1)]
    await task


async def test_no_time_needs_no_advance() -> None:
    clock = ManualClock()
    await clock.sleep(0)
    await clock.sleep(-1)


async def test_both_clocks_of_a_manual_clock_move_together() -> None:
    clock = ManualClock()
    before = clock.now()
    await clock.advance(90)
    assert (clock.now() - before).total_seconds() == 90
    assert clock.now().tzinfo is not None


async def test_the_system_clock_sleeps_at_least_as_long_as_asked() -> None:
    clock = SystemClock()
    before, wall = clock.boottime(), clock.now()
    await clock.sleep(0.05)
    assert 0.05 <= clock.boottime() - before < 5
    assert clock.now() > wall
    assert clock.now().utcoffset() is not None
