"""Outboxes: rows that are due are claimed, by one replica at a time, and handled many at once."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from typing import Final, Generic, Protocol, TypeVar

from services.common.clock import Clock
from services.common.loops import Failures, forever
from services.session.watch.waiting import Bell

ClaimT = TypeVar("ClaimT")
RowT_co = TypeVar("RowT_co", covariant=True)

# A claim outlives its attempt; a replica that dies with it delays the row by so many seconds.
HOLD: Final = 8.0
ATTEMPT: Final = 6.5
_BACK_OFF: Final = (0.2, 0.5, 1.0, 2.0, 5.0)
_CONCURRENT: Final = 32
_WAITING: Final = 1000
# Other replicas add rows too, and tell nobody.
_IDLE: Final = 0.5
_SHORTEST: Final = 0.01
_HAND_BACK: Final = 1.0


def back_off(attempts: int) -> float:
    """Seconds until a row is due again after so many attempts, one or more."""
    return _BACK_OFF[min(attempts, len(_BACK_OFF)) - 1]


class Outbox(Protocol[ClaimT]):
    """Rows to be handled until they are done; one that is claimed is due again after HOLD seconds."""

    async def claim(self, limit: int) -> Sequence[ClaimT]:
        """Take at most so many rows that are due."""
        ...

    async def next_due(self) -> float | None:
        """Seconds until the next row is due, None when there is none."""
        ...

    async def handle(self, claim: ClaimT) -> None:
        """Make an attempt, of at most ATTEMPT seconds, and say when the row is due again."""
        ...

    async def hand_back(self, claim: ClaimT) -> None:
        """Let the row be due at once: this replica stops."""
        ...


class ClaimLoop(Generic[ClaimT]):
    """Works an outbox off; any number of replicas may run it."""

    def __init__(self, name: str, outbox: Outbox[ClaimT], clock: Clock) -> None:
        """`name` says in the log what is done with a claim."""
        self._name = name
        self._outbox = outbox
        self._clock = clock
        self._bell = Bell(clock)
        self._failures = Failures(name)
        self._running = 0
        self._tasks: asyncio.TaskGroup | None = None
        self._handed_over: deque[ClaimT] = deque(maxlen=_WAITING)

    def wake(self) -> None:
        """There is a new row."""
        self._bell.ring()

    def hand_over(self, claim: ClaimT) -> None:
        """Handle a row that was stored as claimed, as soon as there is room; forgotten, it is due again."""
        self._handed_over.append(claim)
        self._begin_handed_over()

    async def run(self) -> None:
        """Claim and handle until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            self._tasks = tasks
            try:
                step = partial(self._step, tasks)
                await forever(f"claims for {self._name}", step, clock=self._clock, longest_delay=2.0)
            finally:
                # Calls may go on for a while; what they hand over now is left to others.
                self._tasks = None

    async def _step(self, tasks: asyncio.TaskGroup) -> None:
        self._begin_handed_over()
        free = _CONCURRENT - self._running
        claims = await self._outbox.claim(free) if free > 0 else []
        for claim in claims:
            self._begin(tasks, claim)
        if not claims:
            due = await self._outbox.next_due()
            await self._bell.wait(_IDLE if due is None else min(max(due, _SHORTEST), _IDLE))

    def _begin_handed_over(self) -> None:
        while self._tasks is not None and self._handed_over and self._running < _CONCURRENT:
            self._begin(self._tasks, self._handed_over.popleft())

    def _begin(self, tasks: asyncio.TaskGroup, claim: ClaimT) -> None:
        self._running += 1
        tasks.create_task(self._handle(claim))

    async def _handle(self, claim: ClaimT) -> None:
        try:
            await self._outbox.handle(claim)
        except asyncio.CancelledError:
            await self._hand_back(claim)
            raise
        except Exception as error:  # noqa: BLE001 (logged; the claim ends by itself)
            self._failures.report(error)
        else:
            self._failures.clear()
        finally:
            self._running -= 1
            self._bell.ring()

    async def _hand_back(self, claim: ClaimT) -> None:
        with suppress(Exception):
            async with asyncio.timeout(_HAND_BACK):
                await self._outbox.hand_back(claim)


class Rows(Protocol[RowT_co]):
    """The stored rows of an outbox."""

    async def hasten(self) -> None:
        """Let all of them be due."""
        ...

    async def claim(self, limit: int, *, hold: float) -> Sequence[RowT_co]:
        """Take at most so many that are due; they are due again after `hold` seconds."""
        ...

    async def next_due(self) -> float | None:
        """Seconds until the next one is due, None when there is none."""
        ...


class StoredOutbox(ABC, Generic[ClaimT]):
    """An outbox of stored rows, which a replica works off from its start on."""

    def __init__(self, name: str, rows: Rows[ClaimT], clock: Clock) -> None:
        """`name` says in the log what is done with a row."""
        self._rows = rows
        self._loop = ClaimLoop(name, self, clock)
        self._hastened = False

    def wake(self) -> None:
        """There is a new row."""
        self._loop.wake()

    async def run(self) -> None:
        """Work it off until cancelled."""
        await self._loop.run()

    async def claim(self, limit: int) -> Sequence[ClaimT]:
        """See Outbox. After a start everything is due: whoever had claimed it may be gone."""
        if not self._hastened:
            await self._rows.hasten()
            self._hastened = True
        return await self._rows.claim(limit, hold=HOLD)

    async def next_due(self) -> float | None:
        """See Outbox."""
        return await self._rows.next_due()

    @abstractmethod
    async def handle(self, claim: ClaimT) -> None:
        """See Outbox."""

    @abstractmethod
    async def hand_back(self, claim: ClaimT) -> None:
        """See Outbox."""
