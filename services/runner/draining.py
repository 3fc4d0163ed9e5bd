"""The end of a runner: parked runtimes end, turns finish, or are stopped, or are given up (F11)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from moorage.common.v1.turn_pb2 import EndReason

from services.common.clock import Clock
from services.common.logs import get_logger
from services.fencing.alarm import Alarm
from services.runner.dispatching import Dispatching
from services.runner.endings import TurnAbandoned, TurnStopped
from services.runner.executions import Executions
from services.runner.holds import Hold
from services.runner.interrupts import Interruption, background
from services.runner.park import Park
from services.runner.registration import Registration

_log: Final = get_logger(__name__)


class Drain:
    """Happens once, whoever orders it; `over` is set when nothing is left."""

    def __init__(
        self,
        dispatching: Dispatching,
        executions: Executions,
        park: Park[Hold],
        registration: Registration,
        clock: Clock,
        *,
        withdraw: Callable[[], None],
        grace: float,
        stopping: float,
    ) -> None:
        """Turns may go on for `grace` seconds; stopping them takes at most `stopping` seconds.

        `withdraw` makes the process not ready, at once.
        """
        self.over: Final = asyncio.Event()
        self._dispatching = dispatching
        self._executions = executions
        self._park = park
        self._registration = registration
        self._clock = clock
        self._withdraw = withdraw
        self._grace = grace
        self._stopping = stopping
        self._begun = asyncio.Event()
        self._stops_at = float("inf")
        self._alarm = Alarm(clock)

    @property
    def executions(self) -> int:
        """How many turns are left."""
        return len(self._executions)

    @property
    def runtimes(self) -> int:
        """How many runtimes are left between turns."""
        return self._park.runtimes

    def begin(self, grace: float | None = None) -> None:
        """Take no more turns. Of several graces the one counts that ends first."""
        self._withdraw()
        self._dispatching.stop_taking()
        seconds = self._grace if grace is None else grace
        self._stops_at = min(self._stops_at, self._clock.boottime() + seconds)
        self._alarm.move()
        self._begun.set()

    async def run(self) -> None:
        """Begin, and return when nothing is executed and the runner's own lease is given back."""
        self.begin()
        await self.over.wait()

    async def watch(self) -> None:
        """Carry a drain out once one has begun; `run` and all who wait depend on it."""
        await self._begun.wait()
        _log.info("draining", executions=self.executions, runtimes=self.runtimes)
        try:
            await asyncio.gather(self._registration.release(), self._park.close(), self._empty())
        except Exception as error:  # noqa: BLE001 (whoever waits has to go on)
            _log.error("drain failed", exc_info=error)
        _log.info("drained", executions=self.executions)
        self.over.set()
        # For who looks after this task: it ends with the process.
        await asyncio.Event().wait()

    async def _empty(self) -> None:
        if await self._is_empty_by(lambda: self._stops_at):
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
        until = self._clock.boottime() + seconds
        return await self._is_empty_by(lambda: until)

    async def _is_empty_by(self, due: Callable[[], float]) -> bool:
        """Whether nothing is executed any more, at the latest at this boot time, which may move."""
        scope = Interruption()

        async def expire() -> None:
            await self._alarm.wait(due)
            scope.interrupt(TimeoutError())

        try:
            async with background(expire()), scope:
                await self._executions.until_empty()
        except TimeoutError:
            return False
        return True
