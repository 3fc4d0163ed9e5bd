"""Group commit (R3): the records of all streams of this process, many sessions in one transaction."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from services.common.errors import Internal, MoorageError, ShuttingDown
from services.common.logs import get_logger
from services.session.journal.calls import AppendCall
from services.session.store.journal import JournalStore

Outcomes: TypeAlias = "list[int | MoorageError]"

# Requests that wait for the transaction under way; a request has at most 1 MiB.
_WAITING: Final = 32
# More make a transaction longer without making it cheaper.
_BATCH: Final = 1000

_log: Final = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class _Group:
    """What one request appends, and what became of it: one outcome each, or one refusal of all."""

    calls: Sequence[AppendCall]
    outcomes: asyncio.Future[Outcomes | MoorageError]

    def settle(self, outcomes: Outcomes | MoorageError) -> None:
        if not self.outcomes.done():
            self.outcomes.set_result(outcomes)


class Appender:
    """Appends in the order of submission; whoever submits too much waits."""

    def __init__(self, journal: JournalStore) -> None:
        """Appends through this store."""
        self._journal = journal
        self._groups: asyncio.Queue[_Group] = asyncio.Queue(_WAITING)
        self._closed = False
        self.appending = 0

    @property
    def waiting(self) -> int:
        """Requests that wait for the transaction under way; `appending` are those in it."""
        return self._groups.qsize()

    async def submit(self, calls: Sequence[AppendCall]) -> asyncio.Future[Outcomes | MoorageError]:
        """Queue records; the future has an outcome for each, or the error that struck them all."""
        group = _Group(calls, asyncio.get_running_loop().create_future())
        if not calls:
            group.settle([])
        elif not self._closed:
            await self._groups.put(group)
        if self._closed:
            group.settle(ShuttingDown())
            self._refuse_waiting()
        return group.outcomes

    async def run(self) -> None:
        """Append until cancelled; what then waits is refused, and its runner sends it again."""
        try:
            while True:
                groups = await self._next()
                self.appending = len(groups)
                await self._append(groups)
                self.appending = 0
        finally:
            self._closed = True
            self._refuse_waiting()

    def _refuse_waiting(self) -> None:
        """Each place that gets free lets in another one that waits to submit, and refuses in turn."""
        while not self._groups.empty():
            self._groups.get_nowait().settle(ShuttingDown())

    async def _next(self) -> list[_Group]:
        groups = [await self._groups.get()]
        count = len(groups[0].calls)
        while count < _BATCH and not self._groups.empty():
            groups.append(self._groups.get_nowait())
            count += len(groups[-1].calls)
        return groups

    async def _append(self, groups: Sequence[_Group]) -> None:
        try:
            outcomes = await self._outcomes([call for group in groups for call in group.calls])
        except MoorageError as error:
            for group in groups:
                group.settle(error)
            return
        except BaseException:
            for group in groups:
                group.settle(ShuttingDown())
            raise
        for group in groups:
            group.settle(outcomes[: len(group.calls)])
            del outcomes[: len(group.calls)]

    async def _outcomes(self, calls: Sequence[AppendCall]) -> Outcomes:
        try:
            return await self._journal.append(calls)
        except MoorageError:
            raise
        except Exception as error:  # noqa: BLE001 (told below, by the record that causes it)
            _log.error("records not stored together", records=len(calls), exc_info=error)
        return [await self._alone(call) for call in calls]

    async def _alone(self, call: AppendCall) -> int | MoorageError:
        """The outcome of one record in a transaction of its own: what is wrong with it hurts no other."""
        try:
            (outcome,) = await self._journal.append([call])
        except MoorageError:
            raise
        except Exception as error:  # noqa: BLE001 (a fault of ours, told with an id)
            error_id = secrets.token_hex(8)
            _log.error("record not stored", error_id=error_id, turn=call.turn.turn_id, exc_info=error)
            return Internal(error_id=error_id)
        return outcome
