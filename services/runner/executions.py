"""The turns that this process executes: one live execution per session (T4)."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from moorage.common.v1.errors_pb2 import ErrorReason
from moorage.common.v1.turn_pb2 import TurnPhase

from services.common.clock import Clock
from services.common.errors import FailedPrecondition
from services.common.validation import mint_id
from services.runner.interrupts import Interruption, time_limit
from services.runner.questions import Questions

# A turn that has ended for its client, or a runtime that is being ended, is gone within this time, mostly.
GOING: Final = 2.0


class TurnInProgress(FailedPrecondition):
    """turn {turn_id} of session {session_id} is in progress on this runner"""

    reason = ErrorReason.ERROR_REASON_TURN_IN_PROGRESS


@dataclass(frozen=True, slots=True, order=True)
class Attempt:
    """One try to run a turn; its id is unique for ever."""

    project: str
    session_id: str
    turn_id: str
    attempt_id: str

    @property
    def resource(self) -> str:
        """The name of the session's lease."""
        return resource_of(self.project, self.session_id)


class Execution:
    """A turn on this runner, from its registration until nothing of it is left."""

    def __init__(
        self, attempt: Attempt, traceparent: str, accept_time: datetime, questions: Questions
    ) -> None:
        """Registered, and nothing done yet."""
        self.attempt: Final = attempt
        self.traceparent: Final = traceparent
        self.accept_time: Final = accept_time
        self.questions: Final = questions
        self.token = 0
        self.phase = TurnPhase.TURN_PHASE_WAITING_FOR_RUNNER
        # Interrupted when nothing may be written any more (F7).
        self.hold: Final = Interruption()
        # Interrupted when the turn is to end before its agent ends it.
        self.work: Final = Interruption()
        # The agent has its prompt, and that is still to be told.
        self.is_untold = False
        # FinishTurn is on its way: a client may know already that the turn has ended.
        self.finishing = False
        # FinishTurn is acknowledged, or the turn is not this runner's any more.
        self.settled = False
        self.gone: Final = asyncio.Event()
        self._leased: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    @property
    def stopping(self) -> bool:
        """Whether the turn is to end before its agent ends it: nothing new begins any more."""
        return self.work.error is not None

    def accept(self, token: int) -> None:
        """The session is leased with this fencing token."""
        self.token = token
        self._leased.set_result(None)

    def refuse(self, error: Exception) -> None:
        """The session could not be leased."""
        self._leased.set_exception(error)
        # Whoever dispatched may have gone away.
        self._leased.exception()

    async def leased(self) -> None:
        """Return when the session is leased; raises why it is not."""
        await asyncio.shield(self._leased)


def resource_of(project: str, session_id: str) -> str:
    """The name of a session's lease."""
    return f"projects/{project}/sessions/{session_id}"


class Executions:
    """All executions of this process, by project and session."""

    def __init__(self, clock: Clock, capacity: int) -> None:
        """`capacity`: how many turns may be in progress at the same time."""
        self._clock = clock
        self._capacity = capacity
        self._by_session: dict[tuple[str, str], Execution] = {}
        self._empty = asyncio.Event()
        self._empty.set()

    def find(self, project: str, session_id: str) -> Execution | None:
        """The session's execution."""
        return self._by_session.get((project, session_id))

    async def until_over(self, project: str, session_id: str) -> None:
        """Return when nothing of the session's turn is left, if that has ended for its client, or after a while."""
        execution = self.find(project, session_id)
        if execution is None or not execution.finishing:
            return
        with contextlib.suppress(TimeoutError):
            async with time_limit(self._clock, GOING, TimeoutError):
                await execution.gone.wait()

    def __len__(self) -> int:
        """How many there are."""
        return len(self._by_session)

    @property
    def full(self) -> bool:
        """Whether the capacity is used up."""
        return len(self._by_session) >= self._capacity

    def register(
        self, project: str, session_id: str, turn_id: str, traceparent: str, attempt_id: str = ""
    ) -> Execution:
        """Take the session's place, which must be free; without an attempt's id it is a new attempt."""
        key = (project, session_id)
        if key in self._by_session:
            raise ValueError(f"session {session_id} is executed already")
        attempt = Attempt(project, session_id, turn_id, attempt_id or mint_id("attempt"))
        execution = Execution(attempt, traceparent, self._clock.now(), Questions(self._clock))
        self._by_session[key] = execution
        self._empty.clear()
        return execution

    def unregister(self, execution: Execution) -> None:
        """Free the session's place: nothing of the execution is left."""
        key = (execution.attempt.project, execution.attempt.session_id)
        if self._by_session.get(key) is execution:
            del self._by_session[key]
        execution.gone.set()
        if not self._by_session:
            self._empty.set()

    async def until_empty(self) -> None:
        """Wait until nothing is executed."""
        await self._empty.wait()

    def __iter__(self) -> Iterator[Execution]:
        """By project and session."""
        return iter([self._by_session[key] for key in sorted(self._by_session)])
