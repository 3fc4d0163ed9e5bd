"""Takes turns: registers, leases, drives, gives back, unregisters (T4), each in a task of its own."""

from __future__ import annotations

import asyncio
import enum
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

from services.common.clock import Clock
from services.common.logs import bind, get_logger
from services.common.telemetry import use_traceparent
from services.fencing.errors import LeaseHeld
from services.runner.endings import TurnAbandoned
from services.runner.executions import Execution, Executions
from services.runner.holds import Hold, Holds
from services.runner.interrupts import time_limit

_log: Final = get_logger(__name__)
# A turn that has ended for its client leaves its runner within this time, mostly.
_GOING: Final = 2.0


class Answer(enum.Enum):
    """What a dispatch is answered."""

    ACCEPTED = "ACCEPTED"
    DRAINING = "DRAINING"
    FULL = "FULL"
    LEASE_HELD_ELSEWHERE = "LEASE_HELD_ELSEWHERE"


@dataclass(frozen=True, slots=True)
class Dispatched:
    """An answer; `lease_holder` is who else holds the session."""

    answer: Answer
    lease_holder: str = ""


class Dispatching:
    """The runner's turns, each from its dispatch until nothing of it is left."""

    def __init__(
        self,
        executions: Executions,
        holds: Holds,
        drive: Callable[[Execution, Hold], Awaitable[None]],
        clock: Clock,
    ) -> None:
        """`drive` carries a leased turn to its end."""
        self._executions = executions
        self._holds = holds
        self._drive = drive
        self._clock = clock
        self._tasks: asyncio.TaskGroup | None = None
        self._draining = False

    async def run(self) -> None:
        """Own the tasks of the turns; cancelled, it cuts them off."""
        try:
            async with asyncio.TaskGroup() as self._tasks:
                await asyncio.Event().wait()
        finally:
            self._tasks = None

    def stop_taking(self) -> None:
        """Answer DRAINING from now on."""
        self._draining = True

    async def dispatch(self, project: str, session_id: str, turn_id: str, traceparent: str) -> Dispatched:
        """Take the turn or say why not; raises DependencyUnavailable when owner cannot be asked.

        The turn does not depend on this call: a caller who goes away changes nothing.
        """
        current = self._executions.find(project, session_id)
        if current and current.attempt.turn_id != turn_id:
            await self._until_gone(current)
            current = self._executions.find(project, session_id)
        if current and current.attempt.turn_id == turn_id:
            return await _answer(current)
        if self._draining or self._tasks is None:
            return Dispatched(Answer.DRAINING)
        if current or self._executions.full:
            return Dispatched(Answer.FULL)
        execution = self._executions.register(project, session_id, turn_id, traceparent)
        self._tasks.create_task(self._execute(execution))
        return await _answer(execution)

    async def _until_gone(self, execution: Execution) -> None:
        """The next turn may come before the one that has ended is cleared away."""
        if not execution.finishing:
            return
        try:
            async with time_limit(self._clock, _GOING, TimeoutError):
                await execution.gone.wait()
        except TimeoutError:
            return

    async def _execute(self, execution: Execution) -> None:
        attempt = execution.attempt
        bind(project=attempt.project, session=attempt.session_id, turn=attempt.turn_id)
        try:
            with use_traceparent(execution.traceparent):
                if hold := await self._take(execution):
                    await self._drive_held(execution, hold)
                    await hold.give_back()
        except Exception as error:  # noqa: BLE001 (the lease then ends by itself; the others go on)
            _log.error("a lease was not given back because of an unexpected error", exc_info=error)
        finally:
            self._executions.unregister(execution)

    async def _take(self, execution: Execution) -> Hold | None:
        try:
            hold = await self._holds.take(execution.attempt.resource, execution.hold.interrupt)
        except Exception as error:  # noqa: BLE001 (whoever dispatched is told)
            execution.refuse(error)
            return None
        execution.accept(hold.lease.token)
        return hold

    async def _drive_held(self, execution: Execution, hold: Hold) -> None:
        try:
            async with execution.hold:
                await self._drive(execution, hold)
        except TurnAbandoned as error:
            _log.warning("the turn was given up", cause=str(error))
        except Exception as error:  # noqa: BLE001 (one turn's fault must not end the others)
            _log.error("the turn was given up because of an unexpected error", exc_info=error)


async def _answer(execution: Execution) -> Dispatched:
    try:
        await execution.leased()
    except LeaseHeld as error:
        return Dispatched(Answer.LEASE_HELD_ELSEWHERE, error.metadata.get("holder", ""))
    return Dispatched(Answer.ACCEPTED)
