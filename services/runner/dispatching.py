"""Takes turns: registers, leases, drives, parks or gives back, unregisters (T4), each in a task of its own."""

from __future__ import annotations

import asyncio
import contextlib
import enum
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

from services.common.clock import Clock
from services.common.failpoints import failpoint
from services.common.logs import bind, get_logger
from services.common.telemetry import use_traceparent
from services.fencing.errors import LeaseHeld
from services.runner.endings import TurnAbandoned, TurnRefused
from services.runner.executions import GOING, Execution, Executions, TurnInProgress, resource_of
from services.runner.holds import Hold, Holds
from services.runner.interrupts import time_limit
from services.runner.park import Park

_log: Final = get_logger(__name__)

# Carries a held turn to its end; whether the hold's runtime may stay.
Drive = Callable[[Execution, Hold], Awaitable[bool]]


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
    """The runner's turns, each from its dispatch until its hold is parked or nothing of it is left."""

    def __init__(
        self,
        executions: Executions,
        holds: Holds,
        park: Park[Hold],
        drive: Drive,
        settle: Drive,
        clock: Clock,
    ) -> None:
        """`drive` runs turns, `settle` ends those that were begun here and are not run."""
        self._executions = executions
        self._holds = holds
        self._park = park
        self._drive = drive
        self._settle = settle
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
        """Answer DRAINING from now on; twice is fine."""
        self._draining = True

    async def dispatch(self, project: str, session_id: str, turn_id: str, traceparent: str) -> Dispatched:
        """Take the turn or say why not; raises DependencyUnavailable when owner cannot be asked.

        The turn does not depend on this call: a caller who goes away changes nothing.
        """
        if (current := self._executions.find(project, session_id)) and current.attempt.turn_id == turn_id:
            return await _answer(current)
        await self._until_free(project, session_id)
        # Another dispatch of this turn may have waited as well.
        if (current := self._executions.find(project, session_id)) and current.attempt.turn_id == turn_id:
            return await _answer(current)
        if self._draining or self._tasks is None:
            return Dispatched(Answer.DRAINING)
        if not self._has_room(project, session_id):
            return Dispatched(Answer.FULL)
        execution = self._executions.register(project, session_id, turn_id, traceparent)
        self._begin(self._tasks, execution, self._park.take(execution.attempt.resource), self._drive)
        return await _answer(execution)

    async def settle(self, project: str, session_id: str, turn_id: str, attempt_id: str) -> bool:
        """End a turn that was begun here and is not run; whether it is this process's to end.

        A turn that is run after all, or ended already, is left alone. TurnInProgress when
        another one of the session is run.
        """
        if (current := self._executions.find(project, session_id)) and current.attempt.turn_id == turn_id:
            return True
        await self._executions.until_over(project, session_id)
        if current := self._executions.find(project, session_id):
            raise TurnInProgress(session_id=session_id, turn_id=current.attempt.turn_id)
        hold = self._park.take(resource_of(project, session_id))
        if hold is None or self._tasks is None:
            return False
        execution = self._executions.register(project, session_id, turn_id, "", attempt_id)
        self._begin(self._tasks, execution, hold, self._settle)
        return True

    async def _until_free(self, project: str, session_id: str) -> None:
        """The next turn may come before the one that has ended, or its runtime, is cleared away."""
        with contextlib.suppress(TimeoutError):
            async with time_limit(self._clock, GOING, TimeoutError):
                await self._executions.until_over(project, session_id)
                await self._park.until_left(resource_of(project, session_id))

    def _has_room(self, project: str, session_id: str) -> bool:
        resource = resource_of(project, session_id)
        if self._executions.find(project, session_id) or self._park.is_leaving(resource):
            return False
        if self._executions.full:
            # Another runner may have room, and can have it once the lease is given back.
            self._park.dismiss(resource, "the runner is full")
            return False
        return True

    def _begin(self, tasks: asyncio.TaskGroup, execution: Execution, hold: Hold | None, drive: Drive) -> None:
        """A parked hold is its execution's from here on: nobody can come between."""
        if hold is not None:
            self._hand_over(hold, execution)
        tasks.create_task(self._execute(execution, hold, drive))

    def _hand_over(self, hold: Hold, execution: Execution) -> None:
        hold.watched_by(execution.hold.interrupt)
        execution.accept(hold.lease.token)

    async def _execute(self, execution: Execution, hold: Hold | None, drive: Drive) -> None:
        attempt = execution.attempt
        bind(project=attempt.project, session=attempt.session_id, turn=attempt.turn_id)
        try:
            with use_traceparent(execution.traceparent):
                if hold := hold or await self._take(execution):
                    await self._use(execution, hold, drive)
        except Exception as error:  # noqa: BLE001 (the lease then ends by itself; the others go on)
            _log.error("a lease was not given back because of an unexpected error", exc_info=error)
        finally:
            self._executions.unregister(execution)

    async def _take(self, execution: Execution) -> Hold | None:
        try:
            await failpoint("runner.dispatch.registered")
            hold = await self._holds.take(execution.attempt.resource)
        except Exception as error:  # noqa: BLE001 (whoever dispatched is told)
            execution.refuse(error)
            return None
        self._hand_over(hold, execution)
        return hold

    async def _use(self, execution: Execution, hold: Hold, drive: Drive) -> None:
        try:
            stays = await self._drive_held(execution, hold, drive)
            await failpoint("runner.park.before")
            if stays and self._park.is_open:
                self._park.put(hold)
            elif stays:
                await hold.retire()
            else:
                await hold.give_back()
        except BaseException:
            await hold.abandon()
            raise

    async def _drive_held(self, execution: Execution, hold: Hold, drive: Drive) -> bool:
        try:
            async with execution.hold:
                return await drive(execution, hold)
        except TurnRefused as error:
            _log.info("the turn was not begun", cause=str(error))
            return hold.runtime is not None
        except TurnAbandoned as error:
            _log.warning("the turn was given up", cause=str(error))
        except Exception as error:  # noqa: BLE001 (one turn's fault must not end the others)
            _log.error("the turn was given up because of an unexpected error", exc_info=error)
        return False


async def _answer(execution: Execution) -> Dispatched:
    try:
        await execution.leased()
    except LeaseHeld as error:
        return Dispatched(Answer.LEASE_HELD_ELSEWHERE, error.metadata.get("holder", ""))
    return Dispatched(Answer.ACCEPTED)
