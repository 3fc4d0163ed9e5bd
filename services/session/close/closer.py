"""The loop that closes sessions: any replica takes a closing one up, until nothing is left to do."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

from services.common.clock import Clock
from services.common.errors import MoorageError
from services.common.failpoints import failpoint
from services.common.logs import get_logger
from services.common.telemetry import use_traceparent
from services.session.close.closing import CloseClaim, NotYet
from services.session.close.steps import CloseSteps
from services.session.outbox.claims import ATTEMPT, HOLD, ClaimLoop, back_off
from services.session.store.closing import CloseStore

_log: Final = get_logger(__name__)


class Closer:
    """Any number of replicas may run it: a session is closed by one at a time."""

    def __init__(
        self, store: CloseStore, steps: CloseSteps, clock: Clock, *, changed: Callable[[str, str], None]
    ) -> None:
        """`changed` is told project and session of each one that was closed."""
        self._store = store
        self._steps = steps
        self._changed = changed
        self._loop = ClaimLoop("closing a session", self, clock)
        self._hastened = False

    def wake(self) -> None:
        """A session is to be closed."""
        self._loop.wake()

    async def run(self) -> None:
        """Close until cancelled."""
        await self._loop.run()

    async def claim(self, limit: int) -> Sequence[CloseClaim]:
        """See Outbox. After a start everything is due: whoever was at it may be gone."""
        if not self._hastened:
            await self._store.hasten()
            self._hastened = True
        return await self._store.claim(limit, hold=HOLD)

    async def next_due(self) -> float | None:
        """See Outbox."""
        return await self._store.next_due()

    async def handle(self, claim: CloseClaim) -> None:
        """See Outbox. The client's request goes on here, whichever process and whenever it is."""
        with use_traceparent(claim.traceparent):
            obstacle = await self._bounded(claim)
        if obstacle is None:
            await failpoint("session.close.before_closed")
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
        if await self._store.finish(claim):
            _log.info("session closed", **_names(claim))
            self._changed(*claim.key)


def _names(claim: CloseClaim) -> dict[str, str]:
    return {"project": claim.key.project, "session": claim.key.session_id}
