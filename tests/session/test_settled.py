"""Work that goes on to its end when the one who waits is cancelled."""

from __future__ import annotations

import asyncio

import pytest

from services.session.settled import settled


async def test_gives_what_the_work_gives() -> None:
    async def work() -> int:
        await asyncio.sleep(0)
        return 7

    assert await settled(work()) == 7


async def test_raises_what_the_work_raises() -> None:
    async def work() -> None:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        await settled(work())


@pytest.mark.parametrize("fails", [False, True])
async def test_the_work_outlives_cancellations_which_are_raised_afterwards(fails: bool) -> None:
    started, release, ended = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def work() -> None:
        started.set()
        await release.wait()
        ended.set()
        if fails:
            raise ValueError("lost")

    waiting = asyncio.create_task(settled(work()))
    await started.wait()
    for _ in range(3):
        waiting.cancel()
        await asyncio.sleep(0)
        assert not waiting.done()
    release.set()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert ended.is_set()
