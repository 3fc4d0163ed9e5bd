"""The end of a runner: parked runtimes end, turns finish, or are stopped, or are given up (F11)."""

from __future__ import annotations

import asyncio
from typing import Final

from moorage.common.v1.turn_pb2 import EndReason

from services.common.clock import Clock
from services.common.logs import get_logger
from services.runner.dispatching import Dispatching
from services.runner.endings import TurnAbandoned, TurnStopped
from services.runner.executions import Executions
from services.runner.holds import Hold
from services.runner.interrupts import time_limit
from services.runner.park import Park
from services.runner.registration import Registration

_log: Final = get_logger(__name__)


class Drain:
    """Runs once, between NOT_SERVING and the end of the loops."""

    def __init__(
        self,
        dispatching: Dispatching,
        executions: Executions,
        park: Park[Hold],
        registration: Registration,
        clock: Clock,
        *,
        grace: float,
        stopping: float,
    ) -> None:
        """Turns may go on for `grace` seconds; stopping them takes at most `stopping` seconds."""
        self._dispatching = dispatching
        self._executions = executions
        self._park = park
        self._registration = registration
        self._clock = clock
        self._grace = grace
        self._stopping = stopping

    async def run(self) -> None:
        """Return when nothing is executed and the runner's own lease is given back."""
        self._dispatching.stop_taking()
        await asyncio.gather(self._registration.release(), self._park.close(), self._empty())

    async def _empty(self) -> None:
        if await self._is_empty_within(self._grace):
            return
        for execution in self._executions:
            _log.info("stopping a turn", turn=execution.attempt.turn_id)
            execution.work.interrupt(TurnStopped(EndReason.END_REASON_DRAINED))
        if await self._is_empty_within(self._stopping):
            return
        for execution in self._executions:
            execution.hold.interrupt(TurnAbandoned("the runner shuts down"))
        await self._is_empty_within(self._stopping)

    async def _is_empty_within(self, seconds: float) -> bool:
        try:
            async with time_limit(self._clock, seconds, TimeoutError):
                await self._executions.until_empty()
        except TimeoutError:
            return False
        return True
