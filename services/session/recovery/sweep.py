"""The sweep (F9): what a live holder began and does not run any more is ended."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from functools import partial
from typing import Final

from moorage.owner.v1.lease_pb2 import Lease
from moorage.runner.v1 import runner_pb2

from services.common.clock import Clock
from services.common.failpoints import failpoint
from services.common.logs import get_logger
from services.common.loops import forever
from services.session.clients import Leases, Runners
from services.session.outbox.delivery import Route
from services.session.recovery.once import OncePerKey
from services.session.recovery.taking import Taker
from services.session.recovery.targets import BegunTurn
from services.session.store.dispatch import DispatchStore
from services.session.store.takeover import TakeoverStore
from services.session.turns import EndReason

_SESSIONS: Final = "projects/"
_ROLE: Final = "runner"

_log: Final = get_logger(__name__)


class Sweep:
    """Any number of replicas may run it: a holder is told twice at most, and ends a turn once."""

    def __init__(
        self,
        store: DispatchStore,
        takeovers: TakeoverStore,
        leases: Leases,
        runners: Runners,
        taker: Taker,
        clock: Clock,
        *,
        interval: float,
    ) -> None:
        """`interval`: seconds between looks."""
        self._store = store
        self._takeovers = takeovers
        self._leases = leases
        self._runners = runners
        self._taker = taker
        self._clock = clock
        self._interval = interval
        self._holders = OncePerKey("asking a runner what it executes")
        self._work = OncePerKey("ending a turn that its holder does not run")

    async def run(self) -> None:
        """Sweep until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            step = partial(self._step, tasks)
            await forever("sweeping", step, clock=self._clock, longest_delay=self._interval)

    async def _step(self, tasks: asyncio.TaskGroup) -> float:
        # Turns before executions: what is begun in between is not in the list.
        begun = await self._store.begun_turns()
        await failpoint("session.sweep.after_turns")
        if begun:
            live = await self._leases.list_live(_SESSIONS)
            for route, turns in _by_holder(begun, live).items():
                self._holders.start(tasks, route, self._compare(tasks, route, turns))
        return self._interval

    async def _compare(self, tasks: asyncio.TaskGroup, route: Route, turns: list[BegunTurn]) -> None:
        answer = await self._runners.list_executions(route.endpoint)
        if answer.holder != route.holder:
            # What another process does not run says nothing about the holder.
            return
        executed = {
            (each.project, each.session_id, each.turn_id, each.attempt_id) for each in answer.executions
        }
        for turn in turns:
            if (*turn.key, turn.turn_id, turn.attempt_id) not in executed:
                self._work.start(tasks, turn.key, self._settle(route, turn))

    async def _settle(self, route: Route, turn: BegunTurn) -> None:
        # What was not listed because it had ended just before is to keep its runtime.
        if not await self._store.is_begun(turn):
            return
        names = {"project": turn.key.project, "session": turn.key.session_id, "turn": turn.turn_id}
        _log.warning("a holder does not run what it began", runner=route.holder, **names)
        answer = await self._runners.settle_turn(route.endpoint, turn.key, turn.turn_id, turn.attempt_id)
        if answer.holder == route.holder and answer.result == runner_pb2.DELIVERY_RESULT_NOT_HELD:
            await self._take_over(turn)

    async def _take_over(self, turn: BegunTurn) -> None:
        """The process that renews the lease knows nothing of it: nobody else will end the turn."""
        token = await self._takeovers.mark_missing(turn.key, turn.turn_id, turn.attempt_id)
        if token is not None:
            await self._taker.take(turn, EndReason.EXECUTION_MISSING, name="takeover", replacing=token)


def _by_holder(begun: Iterable[BegunTurn], live: Iterable[Lease]) -> dict[Route, list[BegunTurn]]:
    """The turns whose own holder lives, by where it is reached."""
    leases = {lease.resource: lease for lease in live if lease.labels.get("role") == _ROLE}
    turns: dict[Route, list[BegunTurn]] = {}
    for turn in begun:
        lease = leases.get(turn.key.resource)
        if lease is not None and lease.token == turn.token and lease.endpoint:
            turns.setdefault(Route(lease.holder, lease.endpoint), []).append(turn)
    return turns
