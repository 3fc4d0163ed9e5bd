"""Takeover (S6, T3): sessions whose live holder does not do what it must are taken from it.

First the session is marked: the holder's token begins no more turns of it. Then exactly that
token is replaced. So whenever the second step arrives, it hits nothing that came later.
"""

from __future__ import annotations

import asyncio
from datetime import UTC
from functools import partial
from typing import Final

from moorage.owner.v1.lease_pb2 import Lease

from services.common.clock import Clock
from services.common.failpoints import failpoint
from services.common.logs import get_logger
from services.common.loops import forever
from services.session.clients import Leases
from services.session.journal.rules import SessionKey
from services.session.recovery.once import OncePerKey
from services.session.recovery.taking import Taker
from services.session.recovery.targets import Target
from services.session.store.takeover import TakeoverStore
from services.session.turns import EndReason

_NAME: Final = "takeover"
_SHORTEST: Final = 0.1

_log: Final = get_logger(__name__)


class Takeover:
    """Any number of replicas may run it: a lease is replaced once."""

    def __init__(
        self,
        store: TakeoverStore,
        leases: Leases,
        taker: Taker,
        clock: Clock,
        *,
        admitted_patience: float,
        close_patience: float,
        interval: float,
    ) -> None:
        """Seconds that a holder may leave a turn unbegun, a closing session held; and the longest between looks."""
        self._store = store
        self._leases = leases
        self._taker = taker
        self._clock = clock
        self._admitted_patience = admitted_patience
        self._close_patience = close_patience
        self._interval = interval
        self._work = OncePerKey("taking over a session")
        # Since when this replica has seen a holder leave a turn, or a closing session, as it is.
        self._seen: dict[tuple[Target, int], float] = {}

    async def run(self) -> None:
        """Look until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            step = partial(self._step, tasks)
            await forever(
                "looking for holders to replace", step, clock=self._clock, longest_delay=self._interval
            )

    async def _step(self, tasks: asyncio.TaskGroup) -> float:
        for turn in await self._store.overdue_stops():
            self._work.start(tasks, turn.key, self._end_stop(turn))
        # A holder cannot do what nobody was there to ask it for: half of its time counts from here.
        waiting = await self._store.waiting_turns(self._admitted_patience / 2)
        closing = await self._store.stuck_closings(self._close_patience / 2)
        self._seen = {sight: time for sight, time in self._seen.items() if sight[0] in {*waiting, *closing}}
        for turn in waiting:
            self._work.start(tasks, turn.key, self._free(turn))
        for session in closing:
            self._work.start(tasks, session.key, self._let_close(session))
        return self._until(await self._store.next_stop_deadline())

    async def _end_stop(self, turn: Target) -> None:
        """The Stop of a begun turn is overdue: the turn is LOST."""
        await failpoint("session.takeover.before_mark", turn.turn_id)
        token = await self._store.mark_stop(turn.key, turn.turn_id)
        if token is not None and await self._replace(turn, EndReason.STOP_DEADLINE, token):
            _log.warning("a Stop was not carried out in time", turn=turn.turn_id, **_names(turn.key))

    async def _free(self, turn: Target) -> None:
        """The session's holder does not begin an admitted turn: another one shall."""
        holder = await self._idle_holder(turn, self._admitted_patience)
        if holder is None:
            return
        await failpoint("session.takeover.before_mark", turn.turn_id)
        if await self._store.mark_waiting(turn.key, turn.turn_id, holder.token) and await self._replace(
            turn, EndReason.TAKEN_OVER, holder.token
        ):
            _log.warning("a holder did not begin a turn", turn=turn.turn_id, **_names(turn.key))
            await self._store.dispatch_anew(turn.key, turn.turn_id)

    async def _idle_holder(self, target: Target, patience: float) -> Lease | None:
        """The runner that has held the session for so long, and was seen to for half of it."""
        driver = await self._leases.driver(target.key.resource)
        if driver is None:
            return None
        now = self._clock.boottime()
        seen = now - self._seen.setdefault((target, driver.token), now)
        held = (self._clock.now() - driver.acquire_time.ToDatetime(tzinfo=UTC)).total_seconds()
        return driver if held >= patience and seen >= patience / 2 else None

    async def _let_close(self, session: Target) -> None:
        """The session is closing, and its holder does not let go of it."""
        holder = await self._idle_holder(session, self._close_patience)
        if holder is None:
            return
        await failpoint("session.takeover.before_mark")
        if await self._store.mark_closing(session.key, holder.token) and await self._replace(
            session, EndReason.TAKEN_OVER, holder.token
        ):
            _log.warning("a holder did not let go of a closing session", **_names(session.key))

    async def _replace(self, target: Target, reason: EndReason, token: int) -> bool:
        return await self._taker.take(target, reason, name=_NAME, replacing=token)

    def _until(self, due: float | None) -> float:
        """Seconds until the next look. Other replicas store Stops too, and tell nobody."""
        return self._interval if due is None else min(max(due, _SHORTEST), self._interval)


def _names(key: SessionKey) -> dict[str, str]:
    return {"project": key.project, "session": key.session_id}
