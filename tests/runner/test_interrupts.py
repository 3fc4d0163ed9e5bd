"""Scopes that somebody else can end."""

from __future__ import annotations

import asyncio

import pytest

from services.common.clock import ManualClock
from services.runner.interrupts import Interruption, background, time_limit


class Wanted(Exception):
    """What a test interrupts with."""


async def test_interrupting_ends_the_body_with_the_error_and_what_follows_goes_on() -> None:
    scope = Interruption()
    reached = asyncio.Event()

    async def work() -> str:
        try:
            async with scope:
                reached.set()
                await asyncio.Event().wait()
        except Wanted:
            await asyncio.sleep(0)
        return "went on"

    task = asyncio.create_task(work())
    await reached.wait()
    scope.interrupt(Wanted())
    assert await task == "went on"
    assert task.cancelling() == 0


async def test_an_error_given_before_the_body_is_raised_at_its_entry() -> None:
    scope = Interruption()
    scope.interrupt(Wanted())
    entered = False
    with pytest.raises(Wanted):
        async with scope:
            entered = True
    assert not entered


async def test_interrupting_after_the_body_changes_nothing() -> None:
    scope = Interruption()
    async with scope:
        pass
    scope.interrupt(Wanted())
    await asyncio.sleep(0)
    await asyncio.sleep(0)


async def test_an_interruption_that_comes_while_the_body_ends_is_no_cancellation_of_what_follows() -> None:
    scope = Interruption()
    async with scope:
        scope.interrupt(Wanted())
    await asyncio.sleep(0)
    await asyncio.sleep(0)


async def test_the_first_error_counts() -> None:
    scope = Interruption()

    async def work() -> None:
        async with scope:
            scope.interrupt(Wanted())
            scope.interrupt(ValueError())
            await asyncio.Event().wait()

    with pytest.raises(Wanted):
        await work()


async def test_a_cancellation_from_outside_stays_one() -> None:
    scope = Interruption()
    reached = asyncio.Event()

    async def work() -> None:
        async with scope:
            reached.set()
            await asyncio.Event().wait()

    task = asyncio.create_task(work())
    await reached.wait()
    scope.interrupt(Wanted())
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_an_outer_interruption_ends_an_inner_scope_too() -> None:
    outer, inner = Interruption(), Interruption()

    async def work() -> None:
        async with outer, inner:
            outer.interrupt(Wanted())
            await asyncio.Event().wait()

    with pytest.raises(Wanted):
        await work()


async def test_an_error_of_the_body_is_not_replaced() -> None:
    scope = Interruption()

    async def work() -> None:
        async with scope:
            scope.interrupt(Wanted())
            try:
                await asyncio.Event().wait()
            finally:
                raise KeyError

    with pytest.raises(KeyError):
        await work()
    await asyncio.sleep(0)


async def test_a_time_limit_interrupts_a_body_that_outlasts_it() -> None:
    clock = ManualClock()

    async def work() -> None:
        async with time_limit(clock, 5.0, Wanted):
            await asyncio.Event().wait()

    task = asyncio.create_task(work())
    await clock.until_sleeping()
    await clock.advance(4.9)
    assert not task.done()
    await clock.advance(0.2)
    with pytest.raises(Wanted):
        await task


async def test_a_time_limit_leaves_nothing_behind() -> None:
    clock = ManualClock()
    async with time_limit(clock, 5.0, Wanted):
        await asyncio.sleep(0)
    assert clock.sleepers == 0


async def test_background_activities_end_with_the_body_and_their_failure_does_not_touch_it() -> None:
    ended = asyncio.Event()

    async def endless() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    async def failing() -> None:
        raise Wanted

    async with background(endless(), failing()):
        await asyncio.sleep(0)
    assert ended.is_set()
