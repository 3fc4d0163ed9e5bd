"""Loops that outlive their errors and say each kind once."""

from __future__ import annotations

import asyncio
import logging

import pytest

from services.common.clock import ManualClock
from services.common.errors import DependencyUnavailable
from services.common.loops import Failures, forever

LOGGER = "services.common.loops"


class Steps:
    """A step that does what its script says: an exception to raise or seconds to wait."""

    def __init__(self, *script: Exception | float) -> None:
        self._script = list(script)
        self.times: list[float] = []
        self.clock = ManualClock(boottime=0)

    async def __call__(self) -> float:
        self.times.append(self.clock.boottime())
        outcome = self._script.pop(0) if self._script else 1000.0
        if isinstance(outcome, Exception):
            raise outcome
        return outcome


def away(cause: str) -> DependencyUnavailable:
    return DependencyUnavailable(dependency="owner", cause=cause)


async def run(steps: Steps, seconds: float) -> None:
    loop = asyncio.create_task(forever("renewing", steps, clock=steps.clock))
    await steps.clock.until_sleeping()
    await steps.clock.advance(seconds)
    assert not loop.done()
    loop.cancel()
    with pytest.raises(asyncio.CancelledError):
        await loop


async def test_a_step_says_when_the_next_one_is() -> None:
    steps = Steps(5, 7)
    await run(steps, 20)
    assert steps.times == [0, 5, 12]


async def test_a_loop_outlives_every_error_and_waits_longer_each_time() -> None:
    steps = Steps(*(ValueError(str(number)) for number in range(4)))
    await run(steps, 10)
    waits = [after - before for before, after in zip(steps.times, steps.times[1:], strict=False)]
    assert len(waits) == 4
    for number, wait in enumerate(waits):
        assert 0.1 * 2**number <= wait <= 0.2 * 2**number


async def test_the_wait_is_bounded_and_starts_anew_after_a_success() -> None:
    failures = Failures("renewing")
    for _ in range(2000):
        failures.report(away("refused"))
    assert 7.5 <= failures.back_off(0.2, 15.0) <= 15.0
    failures.clear()
    failures.report(away("refused"))
    assert failures.back_off(0.2, 15.0) <= 0.2


async def test_each_kind_of_error_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, LOGGER)
    await run(
        Steps(away("try 1"), away("try 2"), ValueError("odd"), ValueError("odder"), away("try 3"), 1), 100
    )
    assert [record.message for record in caplog.records] == [*["renewing failed"] * 3, "renewing works again"]
    expected, unexpected, _, recovered = caplog.records
    assert expected.exc_info is None
    assert vars(expected)["error"] == "owner is unavailable: try 1"
    assert unexpected.exc_info is not None
    assert vars(recovered)["failures"] == 5


async def test_a_cancelled_step_ends_the_loop() -> None:
    entered = asyncio.Event()

    async def step() -> None:
        entered.set()
        await asyncio.Event().wait()

    loop = asyncio.create_task(forever("waiting", step))
    await entered.wait()
    loop.cancel()
    with pytest.raises(asyncio.CancelledError):
        await loop
