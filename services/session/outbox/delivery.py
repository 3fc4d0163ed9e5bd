"""The Stop outbox (S6): tells the holders of stopping turns, again and again, until those have ended."""

from __future__ import annotations

import asyncio
import enum
from typing import Final, NamedTuple, Protocol

from services.common.clock import Clock
from services.common.errors import MoorageError
from services.common.failpoints import failpoint
from services.common.logs import get_logger
from services.common.telemetry import use_traceparent
from services.common.together import both
from services.session.commands import StopClaim
from services.session.outbox.claims import ATTEMPT, StoredOutbox, back_off
from services.session.store.delivery import DeliveryStore

_log: Final = get_logger(__name__)


class Route(NamedTuple):
    """Where a session's holder is reached."""

    holder: str
    endpoint: str


class Receipt(enum.Enum):
    """What is known of a Stop that was sent."""

    TAKEN = "TAKEN"
    # The holder itself says that it does not run the turn.
    NOT_HELD = "NOT_HELD"
    # Somebody else answered.
    UNKNOWN = "UNKNOWN"


class StopAdapter(Protocol):
    """A way to reach the holders of sessions; all raise MoorageError when somebody does not answer."""

    def remembered(self, holder: str) -> Route | None:
        """Where this holder was reached before; it may be no holder any more, or gone."""
        ...

    async def route(self, stop: StopClaim) -> Route | None:
        """Where to send it; None while no runner holds the session, which is the watchdog's affair."""
        ...

    async def send(self, route: Route, stop: StopClaim) -> Receipt:
        """Tell the holder."""
        ...

    async def settle(self, route: Route, stop: StopClaim) -> None:
        """Make the holder end the turn, which it does not run (F9)."""
        ...


class StopDelivery(StoredOutbox[StopClaim]):
    """Any number of replicas may run it: a Stop is delivered by one at a time."""

    def __init__(self, store: DeliveryStore, adapter: StopAdapter, clock: Clock) -> None:
        """`adapter` reaches the holders."""
        super().__init__("delivering a Stop", store, clock)
        self._store = store
        self._adapter = adapter

    def hand_over(self, claim: StopClaim) -> None:
        """A Stop was stored, claimed by this replica."""
        self._loop.hand_over(claim)

    async def handle(self, claim: StopClaim) -> None:
        """See Outbox. The client's request goes on here, whichever process and whenever it is."""
        with use_traceparent(claim.traceparent):
            accepted = await self._bounded(claim)
        await self._store.postpone(claim, back_off(claim.attempts), accepted=accepted)

    async def hand_back(self, claim: StopClaim) -> None:
        """See Outbox."""
        await self._store.postpone(claim, 0.0, accepted=False)

    async def _bounded(self, claim: StopClaim) -> bool:
        try:
            async with asyncio.timeout(ATTEMPT):
                return await self._attempt(claim)
        except (TimeoutError, MoorageError) as error:
            _log.warning("Stop not delivered", error=str(error) or "no answer in time", **_names(claim))
            return False

    async def _attempt(self, claim: StopClaim) -> bool:
        if claim.new_for and await self._tell_at_once(claim):
            return True
        route = await self._adapter.route(claim)
        if route is None:
            _log.info("no runner holds the session of a Stop", **_names(claim))
            return False
        if not await self._store.count(claim):
            return False
        await failpoint("session.deliver_stop.before_send")
        receipt = await self._adapter.send(route, claim)
        _log.info("Stop delivered", runner=route.holder, receipt=receipt.value, **_names(claim))
        # A turn that just ended by itself is not run either, and its runtime is to stay.
        if receipt is Receipt.NOT_HELD and await self._store.is_open(claim):
            await self._adapter.settle(route, claim)
        return receipt is Receipt.TAKEN

    async def _tell_at_once(self, claim: StopClaim) -> bool:
        """Whether whoever began the turn has it, without a look at its lease: who has the turn may stop it."""
        route = self._adapter.remembered(claim.new_for)
        if route is None:
            return False
        await failpoint("session.deliver_stop.before_send")
        taken, _ = await both(self._is_taken(route, claim), self._store.count(claim))
        return taken

    async def _is_taken(self, route: Route, claim: StopClaim) -> bool:
        try:
            receipt = await self._adapter.send(route, claim)
        except MoorageError as error:
            _log.info("Stop not delivered at once", error=str(error), **_names(claim))
            return False
        _log.info("Stop delivered", runner=route.holder, receipt=receipt.value, **_names(claim))
        return receipt is Receipt.TAKEN


def _names(stop: StopClaim) -> dict[str, str]:
    return {
        "project": stop.key.project,
        "session": stop.key.session_id,
        "turn": stop.turn_id,
        "command": stop.command_id,
    }
