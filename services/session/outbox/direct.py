"""Ways to deliver a Stop, by name: `direct` calls the runner that holds the session."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final

from moorage.runner.v1 import runner_pb2

from services.common.errors import StartupRefused
from services.common.logs import get_logger
from services.session.clients import Leases, Runners
from services.session.commands import StopClaim
from services.session.outbox.delivery import Receipt, Route, StopAdapter

_log: Final = get_logger(__name__)

_ANSWER: Final = 3.0


class DirectDelivery:
    """Calls the endpoint in the session's live lease."""

    def __init__(self, leases: Leases, runners: Runners) -> None:
        """Who holds a session, and how runners are called."""
        self._leases = leases
        self._runners = runners

    def remembered(self, holder: str) -> Route | None:
        """See StopAdapter."""
        endpoint = self._leases.endpoint_of(holder)
        return Route(holder, endpoint) if endpoint else None

    async def route(self, stop: StopClaim) -> Route | None:
        """See StopAdapter."""
        driver = await self._leases.driver(stop.key.resource, timeout=_ANSWER)
        return Route(driver.holder, driver.endpoint) if driver and driver.endpoint else None

    async def send(self, route: Route, stop: StopClaim) -> Receipt:
        """See StopAdapter."""
        answer = await self._runners.deliver_stop(route.endpoint, stop)
        if answer.holder != route.holder:
            # What it does not run says nothing about the holder, which may still be alive elsewhere.
            _log.warning("another process answers for a runner", runner=route.holder, answered=answer.holder)
            return Receipt.UNKNOWN
        taken = answer.result == runner_pb2.DELIVERY_RESULT_ACCEPTED
        return Receipt.TAKEN if taken else Receipt.NOT_HELD

    async def settle(self, route: Route, stop: StopClaim) -> None:
        """See StopAdapter."""
        await self._runners.settle_turn(route.endpoint, stop.key, stop.turn_id, stop.attempt_id)


_ADAPTERS: Final[Mapping[str, Callable[[Leases, Runners], StopAdapter]]] = MappingProxyType(
    {"direct": DirectDelivery}
)


def stop_adapter(name: str, leases: Leases, runners: Runners) -> StopAdapter:
    """The adapter of this name; StartupRefused without one."""
    if name not in _ADAPTERS:
        raise StartupRefused(f"stop_delivery: {name!r} is none of {', '.join(_ADAPTERS)}")
    return _ADAPTERS[name](leases, runners)
