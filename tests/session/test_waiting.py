"""Waiting for a sign or a time."""

from __future__ import annotations

import asyncio

from services.common.clock import ManualClock
from services.session.watch.waiting import Bell


async def test_a_bell_that_rings_does_not_end_the_wait_after_it() -> None:
    clock = ManualClock()
    bell = Bell(clock)
    heard: list[bool] = []

    async def listen() -> None:
        while True:
            heard.append(await bell.wait(10.0))

    listening = asyncio.create_task(listen())
    await clock.until_sleeping()
    bell.ring()
    await clock.advance(9.0)
    assert heard == [True]
    await clock.advance(1.0)
    assert heard == [True, False]
    listening.cancel()


async def test_a_bell_rung_before_is_heard_by_the_next_wait_only() -> None:
    clock = ManualClock()
    bell = Bell(clock)
    bell.ring()
    assert await bell.wait(10.0) is True
    waiting = asyncio.create_task(bell.wait(10.0))
    await clock.advance(9.0)
    assert not waiting.done()
    bell.ring()
    assert await waiting is True
