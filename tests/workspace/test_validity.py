"""When an exec ends by its grants, second by second (F6)."""

from __future__ import annotations

import asyncio
import os
import select
from datetime import timedelta
from pathlib import Path

import pytest

from services.common.clock import ManualClock
from services.fencing.errors import LeaseExpired
from services.fencing.grants import GrantClaims
from services.workspace.exec.execs import Exec, SessionKey
from services.workspace.exec.input import BUFFER, Stdin
from services.workspace.exec.pipes import PipeWriter
from services.workspace.servicers.validity import Validity


def claims(clock: ManualClock, left: float, token: int = 1) -> GrantClaims:
    return GrantClaims("resource", "runner/1", token, clock.now() + timedelta(seconds=left), "runner")


@pytest.mark.parametrize(("left", "lives"), [(15.0, 14.0), (4.0, 3.0), (2.0, 1.5), (0.4, 0.3)])
async def test_it_ends_a_margin_before_its_grant(left: float, lives: float) -> None:
    clock = ManualClock()
    which = Exec(SessionKey("p", "s"), "w", 1)
    running = asyncio.create_task(Validity(which, claims(clock, left), clock, 1.0).run())
    await clock.until_sleeping()
    await clock.advance(lives - 0.01)
    assert which.may_live
    await clock.advance(0.02)
    await running
    assert isinstance(which.refused.result(), LeaseExpired)


async def test_a_newer_grant_moves_the_end_and_an_older_one_does_not() -> None:
    clock = ManualClock()
    which = Exec(SessionKey("p", "s"), "w", 1)
    older, newer = claims(clock, 10.0), claims(clock, 20.0)
    validity = Validity(which, older, clock, 1.0)
    running = asyncio.create_task(validity.run())
    await clock.until_sleeping()
    await clock.advance(5.0)
    validity.extend(newer)
    validity.extend(older)
    await clock.advance(13.9)
    assert which.may_live
    validity.check()
    await clock.advance(0.2)
    with pytest.raises(LeaseExpired):
        validity.check()
    await running
    assert not which.may_live


async def test_a_grant_that_is_over_ends_it_at_once() -> None:
    clock = ManualClock()
    which = Exec(SessionKey("p", "s"), "w", 1)
    validity = Validity(which, claims(clock, -0.5), clock, 1.0)
    with pytest.raises(LeaseExpired):
        validity.check()
    await validity.run()
    assert not which.may_live


async def test_input_is_not_written_when_the_exec_may_not_live(tmp_path: Path) -> None:
    reader, writer = os.pipe()
    os.set_blocking(reader, False)
    alive = True
    stdin = Stdin(PipeWriter(writer), terminal=False, may_write=lambda: alive)
    pumping = asyncio.create_task(stdin.run())
    await stdin.put(b"before")
    assert os.read(reader, 100) == b"before"
    # What waits when the pipe is full is not written either, once there is room.
    await stdin.put(b"x" * (BUFFER // 2))
    alive = False
    while select.select([reader], [], [], 0)[0]:
        os.read(reader, 65536)
    await asyncio.wait_for(pumping, 5)
    await stdin.put(b"after")
    with pytest.raises(BlockingIOError):
        os.read(reader, 100)
    os.close(reader)
    os.close(writer)
