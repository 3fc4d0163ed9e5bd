"""The loop that closes and deletes sessions: any replica takes one up, until nothing is left to do."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from services.common.clock import Clock
from services.common.errors import MoorageError
from services.common.failpoints import failpoint
from services.common.logs import get_logger
from services.common.telemetry import use_traceparent
from services.session.close.closing import CloseClaim, NotYet
from services.session.close.steps import CloseSteps
from services.session.outbox.claims import ATTEMPT, StoredOutbox, back_off
from services.session.sessions import OperationKind
from services.session.store.closing import CloseStore
from services.session.store.deleting import DeleteStore

# Seconds for which an attempt goes on removing rows; then others have their turn.
_ERASING: Final = 3.0

_log: Final = get_logger(__name__)


class Closer(StoredOutbox[CloseClaim]):
    """Any number of replicas may run it: a session is closed by one at a time."""

    def __init__(
        self,
        store: CloseStore,
        deletions: DeleteStore,
        steps: CloseSteps,
        clock: Clock,
        *,
        changed: Callable[[str, str], None],
    ) -> None:
        """`changed` is told project and session of each one that was closed or is gone."""
        super().__init__("closing a session", store, clock)
        self._store = store
        self._deletions = deletions
        self._steps = steps
        self._clock = clock
        self._changed = changed

    async def handle(self, claim: CloseClaim) -> None:
        """See Outbox. The client's request goes on here, whichever process and whenever it is."""
        with use_traceparent(claim.traceparent):
            if claim.gone:
                await self._erase(claim)
                return
            obstacle = await self._bounded(claim)
        if obstacle is None:
            await self._finish(claim)
        else:
            _log.info("a session is not closed yet", waiting_reason=obstacle.waiting_reason, **_names(claim))
            seconds = back_off(claim.attempts) if obstacle.seconds is None else obstacle.seconds
            await self._store.postpone(claim, seconds, obstacle.waiting_reason)

    async def hand_back(self, claim: CloseClaim) -> None:
        """See Outbox."""
        await self._store.postpone(claim, 0.0, None)

    async def _bounded(self, claim: CloseClaim) -> NotYet | None:
        """What is in the way, None when all steps are done."""
        try:
            async with asyncio.timeout(ATTEMPT):
                await self._steps.run(claim)
        except NotYet as obstacle:
            return obstacle
        except TimeoutError:
            return NotYet("what has to be asked takes too long to answer")
        except MoorageError as error:
            return NotYet(str(error))
        return None

    async def _finish(self, claim: CloseClaim) -> None:
        if claim.operation is OperationKind.CLOSE:
            await failpoint("session.close.before_closed")
            if await self._store.finish(claim):
                self._tell("session closed", claim)
            return
        await failpoint("session.delete.before_gone")
        if await self._deletions.bury(claim):
            self._tell("session deleted", claim)
        await failpoint("session.delete.after_gone")

    async def _erase(self, claim: CloseClaim) -> None:
        """In small transactions: what an attempt leaves, the next one goes on with."""
        ends = self._clock.boottime() + _ERASING
        while await self._deletions.erase(claim.key):
            await failpoint("session.delete.after_batch")
            if self._clock.boottime() >= ends:
                await self._store.postpone(claim, 0.0, None)
                return
        self._tell("nothing is left of a deleted session", claim)

    def _tell(self, event: str, claim: CloseClaim) -> None:
        _log.info(event, **_names(claim))
        self._changed(*claim.key)


def _names(claim: CloseClaim) -> dict[str, str]:
    return {"project": claim.key.project, "session": claim.key.session_id}
