"""Group commit: calls that come while others are under way share a transaction.

A call that finds little to do runs by itself, as it would without this. The others wait for the
transaction under way and then go together, however many they are, with one commit.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from services.common.errors import MoorageError
from services.common.logs import get_logger
from services.owner.leases import Acquisition, Lease, Release
from services.owner.store.batches import BatchStore, Outcome
from services.owner.store.leases import LeaseStore

# So many run by themselves at once; more would wait for each other's commits.
_ALONE: Final = 2
# More make a transaction longer without making it cheaper.
_BATCH: Final = 100

_log: Final = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class _Waiting:
    """A call, and what became of it; None when it has to run by itself after all."""

    work: Acquisition | Release
    outcome: asyncio.Future[Outcome | MoorageError | None]

    @property
    def call(self) -> tuple[str, str] | None:
        """What a request id is remembered by."""
        if isinstance(self.work, Acquisition) and self.work.request_id:
            return self.work.holder, self.work.request_id
        return None

    def settle(self, outcome: Outcome | MoorageError | None) -> None:
        if not self.outcome.done():
            self.outcome.set_result(outcome)


class LeaseGroups:
    """Acquires and releases leases for all calls of this process."""

    def __init__(self, leases: LeaseStore, batches: BatchStore) -> None:
        """`leases` does one thing at a time, `batches` many."""
        self._leases = leases
        self._batches = batches
        self._queue: deque[_Waiting] = deque()
        self._wanted = asyncio.Event()
        self._alone = 0
        self._running = False
        self._committing = False

    async def acquire(self, acquisition: Acquisition) -> Lease:
        """See LeaseStore."""
        if acquisition.takeover_token:
            return await self._leases.acquire(acquisition)
        return await self._do(acquisition, lambda: self._leases.acquire(acquisition))

    async def release(self, release: Release) -> Lease:
        """See LeaseStore."""
        return await self._do(release, lambda: self._leases.release(release))

    async def run(self) -> None:
        """Work the queue off until cancelled; from then on every call runs by itself."""
        self._running = True
        try:
            while True:
                await self._wanted.wait()
                await self._work_off()
        finally:
            self._running = False
            self._leave(self._queue)

    async def _do(self, work: Acquisition | Release, by_itself: Callable[[], Awaitable[Lease]]) -> Lease:
        if self._running and (self._committing or self._queue or self._alone >= _ALONE):
            outcome = await self._in_group(work)
            if isinstance(outcome, MoorageError):
                raise outcome
            if outcome is not None:
                return outcome
        self._alone += 1
        try:
            return await by_itself()
        finally:
            self._alone -= 1

    async def _in_group(self, work: Acquisition | Release) -> Outcome | MoorageError | None:
        waiting = _Waiting(work, asyncio.get_running_loop().create_future())
        self._queue.append(waiting)
        self._wanted.set()
        return await waiting.outcome

    async def _work_off(self) -> None:
        taken = self._take()
        self._committing = True
        try:
            outcomes = await self._commit(list(taken.values()))
        except MoorageError as error:
            for waiting in taken.values():
                waiting.settle(error.again())
        except Exception:  # noqa: BLE001 (logged; nothing was committed)
            _log.exception("a batch of leases failed; each call goes by itself")
            self._leave(taken.values())
        except asyncio.CancelledError:
            self._leave(taken.values())
            raise
        else:
            for resource, waiting in taken.items():
                waiting.settle(outcomes.get(resource))
        finally:
            self._committing = False

    def _take(self) -> dict[str, _Waiting]:
        """Those that wait, by resource.

        A second one about the same, or with the same request id, goes by itself and waits for its lock.
        """
        taken: dict[str, _Waiting] = {}
        calls: set[tuple[str, str]] = set()
        while self._queue and len(taken) < _BATCH:
            waiting = self._queue.popleft()
            if waiting.outcome.cancelled():
                continue
            if waiting.work.resource in taken or waiting.call in calls:
                waiting.settle(None)
                continue
            taken[waiting.work.resource] = waiting
            if waiting.call is not None:
                calls.add(waiting.call)
        if not self._queue:
            self._wanted.clear()
        return taken

    async def _commit(self, taken: Sequence[_Waiting]) -> Mapping[str, Outcome]:
        acquisitions = [each.work for each in taken if isinstance(each.work, Acquisition)]
        releases = [each.work for each in taken if isinstance(each.work, Release)]
        return await self._batches.run(acquisitions, releases) if taken else {}

    def _leave(self, many: Iterable[_Waiting]) -> None:
        for waiting in many:
            waiting.settle(None)
