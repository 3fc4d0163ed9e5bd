"""The bounds of a turn, kept by this runner: duration, silence, tool calls."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

from google.protobuf.duration_pb2 import Duration
from moorage.common.v1.record_pb2 import RecordBody
from moorage.common.v1.turn_pb2 import EndReason, Limits

from services.common.clock import Clock
from services.runner.endings import TurnFailed

_SHORTEST_LOOK: Final = 0.02


class Speaker(Protocol):
    """What can be silent."""

    @property
    def silence(self) -> float:
        """Seconds for which nothing came."""
        ...


class LimitWatch:
    """Interrupts the work on a turn that exceeds one of its limits; a bound of zero is none."""

    def __init__(self, limits: Limits, clock: Clock, exceeded: Callable[[TurnFailed], None]) -> None:
        """Counts from now on."""
        self._limits = limits
        self._clock = clock
        self._exceeded = exceeded
        self._tool_calls = 0

    async def watch_duration(self) -> None:
        """Sleep for `max_duration`, then report."""
        seconds = _seconds(self._limits.max_duration)
        if seconds:
            await self._clock.sleep(seconds)
            self._report(
                EndReason.END_REASON_MAX_DURATION, f"the turn lasted longer than {seconds:g} s", seconds
            )

    async def watch_silence(self, *speakers: Speaker) -> None:
        """Report when none of them said anything for `max_silence`, counted from now at the earliest."""
        seconds = _seconds(self._limits.max_silence)
        if not seconds:
            return
        began = self._clock.boottime()
        while (
            left := seconds - min(self._clock.boottime() - began, *(each.silence for each in speakers))
        ) > 0:
            await self._clock.sleep(max(left, _SHORTEST_LOOK))
        self._report(EndReason.END_REASON_MAX_SILENCE, f"the agent was silent for {seconds:g} s", seconds)

    def count(self, body: RecordBody) -> None:
        """Count a record that is a tool call."""
        most = self._limits.max_tool_calls
        self._tool_calls += body.HasField("tool_call")
        if most and self._tool_calls > most:
            self._report(
                EndReason.END_REASON_MAX_TOOL_CALLS, f"the agent made more than {most} tool calls", most
            )

    def _report(self, reason: EndReason.ValueType, message: str, limit: float) -> None:
        self._exceeded(TurnFailed(reason, message, limit=f"{limit:g}"))


def _seconds(duration: Duration) -> float:
    return duration.seconds + duration.nanos / 1e9
