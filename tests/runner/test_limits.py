"""Bounds of a turn: duration, silence, tool calls."""

from __future__ import annotations

import asyncio

from google.protobuf.duration_pb2 import Duration
from moorage.common.v1.turn_pb2 import EndReason, Limits

from services.common.clock import ManualClock
from services.runner.endings import TurnFailed
from services.runner.limits import LimitWatch
from tests.runner.samples import message, tool_call


class Agent:
    """Something that speaks when a test says so."""

    def __init__(self, clock: ManualClock) -> None:
        self._clock = clock
        self.spoke_at = clock.boottime()

    @property
    def silence(self) -> float:
        return self._clock.boottime() - self.spoke_at


def watch(clock: ManualClock, **limits: object) -> tuple[LimitWatch, list[TurnFailed]]:
    exceeded: list[TurnFailed] = []
    return LimitWatch(Limits(**limits), clock, exceeded.append), exceeded  # type: ignore[arg-type]


async def test_the_duration_is_exceeded_once_it_has_passed() -> None:
    clock = ManualClock()
    limits, exceeded = watch(clock, max_duration=Duration(seconds=60))
    task = asyncio.create_task(limits.watch_duration())
    await clock.until_sleeping()
    await clock.advance(59)
    assert not exceeded
    await clock.advance(2)
    await task
    assert [failure.reason for failure in exceeded] == [EndReason.END_REASON_MAX_DURATION]
    assert exceeded[0].metadata == {"limit": "60"}


async def test_silence_counts_from_the_last_word() -> None:
    clock = ManualClock()
    agent = Agent(clock)
    limits, exceeded = watch(clock, max_silence=Duration(seconds=10))
    task = asyncio.create_task(limits.watch_silence(agent))
    for _ in range(5):
        await clock.until_sleeping()
        await clock.advance(9)
        agent.spoke_at = clock.boottime()
    assert not exceeded
    await clock.advance(9.9)
    assert not exceeded
    await clock.advance(0.2)
    await task
    assert [failure.reason for failure in exceeded] == [EndReason.END_REASON_MAX_SILENCE]


async def test_silence_before_the_watch_began_does_not_count() -> None:
    clock = ManualClock()
    agent = Agent(clock)
    await clock.advance(100)
    limits, exceeded = watch(clock, max_silence=Duration(seconds=10))
    task = asyncio.create_task(limits.watch_silence(agent))
    await clock.until_sleeping()
    await clock.advance(9)
    assert not exceeded
    await clock.advance(2)
    await task
    assert exceeded


async def test_only_tool_calls_count_as_such() -> None:
    limits, exceeded = watch(ManualClock(), max_tool_calls=2)
    for body in (tool_call("1"), message("text"), tool_call("2")):
        limits.count(body)
    assert not exceeded
    limits.count(tool_call("3"))
    assert [failure.reason for failure in exceeded] == [EndReason.END_REASON_MAX_TOOL_CALLS]


async def test_absent_bounds_bound_nothing() -> None:
    clock = ManualClock()
    limits, exceeded = watch(clock)
    await limits.watch_duration()
    await limits.watch_silence(Agent(clock))
    for n in range(1000):
        limits.count(tool_call(str(n)))
    assert not exceeded
