"""The answer outbox: tells runners what was decided about their questions, again and again, until they know."""

from __future__ import annotations

import asyncio
from typing import Final

from moorage.runner.v1 import runner_pb2

from services.common.clock import Clock
from services.common.errors import MoorageError
from services.common.failpoints import failpoint
from services.common.logs import get_logger
from services.common.telemetry import use_traceparent
from services.session.clients import Leases, Runners
from services.session.interactions import AnswerClaim
from services.session.outbox.claims import ATTEMPT, StoredOutbox, back_off
from services.session.sessions import resource_of
from services.session.store.answers import AnswerStore

_ANSWER: Final = 3.0

_log: Final = get_logger(__name__)


class AnswerDelivery(StoredOutbox[AnswerClaim]):
    """Any number of replicas may run it: a decision is delivered by one at a time.

    It goes on until the holder of the session has taken it, or the turn is stopped or has
    ended; a holder that does not have the turn is left to the rules that end such a turn (F8, F9).
    """

    def __init__(self, store: AnswerStore, leases: Leases, runners: Runners, clock: Clock) -> None:
        """Who holds a session, and how runners are called."""
        super().__init__("delivering an answer", store, clock)
        self._store = store
        self._leases = leases
        self._runners = runners

    async def handle(self, claim: AnswerClaim) -> None:
        """See Outbox. The trace of the turn goes on here, whichever process and whenever it is."""
        with use_traceparent(claim.traceparent):
            delivered = await self._bounded(claim)
        if delivered:
            await self._store.delivered(claim)
        else:
            await self._store.postpone(claim, back_off(claim.attempts))

    async def hand_back(self, claim: AnswerClaim) -> None:
        """See Outbox."""
        await self._store.postpone(claim, 0.0)

    async def _bounded(self, claim: AnswerClaim) -> bool:
        try:
            async with asyncio.timeout(ATTEMPT):
                return await self._attempt(claim)
        except (TimeoutError, MoorageError) as error:
            _log.warning("answer not delivered", error=str(error) or "no answer in time", **_names(claim))
            return False

    async def _attempt(self, claim: AnswerClaim) -> bool:
        driver = await self._leases.driver(resource_of(claim.project, claim.session_id), timeout=_ANSWER)
        if driver is None:
            _log.info("no runner holds the session of an answer", **_names(claim))
            return False
        await failpoint("session.deliver_answer.before_send")
        response = await self._runners.deliver_answer(driver.endpoint, claim)
        accepted = response.result == runner_pb2.DELIVERY_RESULT_ACCEPTED
        _log.info("answer delivered", runner=driver.holder, accepted=accepted, **_names(claim))
        return accepted


def _names(claim: AnswerClaim) -> dict[str, str]:
    return {
        "project": claim.project,
        "session": claim.session_id,
        "turn": claim.turn_id,
        "interaction": claim.interaction_id,
    }
