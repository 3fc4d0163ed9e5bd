"""The session service's own Stops: of turns whose runner should have ended them, and did not."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Final

from services.common.clock import Clock
from services.common.logs import get_logger
from services.common.loops import Failures
from services.common.validation import mint_id
from services.session.commands import StopDraft
from services.session.store.overdue import ExceedingTurn, OverdueStore
from services.session.store.stopping import StopStore

_SHORTEST: Final = 0.1

_log: Final = get_logger(__name__)


class Overdue:
    """Every replica may do it: the session's lock decides who stops a turn."""

    def __init__(
        self,
        store: OverdueStore,
        stops: StopStore,
        clock: Clock,
        *,
        margin: float,
        interval: float,
        stopping: Callable[[], None],
    ) -> None:
        """`margin`: seconds that a runner has, after a bound of a turn, to end it by itself.

        `interval`: the longest between looks; `stopping` is called when there is a Stop to deliver.
        """
        self._store = store
        self._stops = stops
        self._clock = clock
        self._margin = timedelta(seconds=margin)
        self._interval = interval
        self._stopping = stopping
        self._failures = Failures("stopping a turn that exceeds its bounds")

    async def step(self) -> float:
        """Stop what exceeds its bounds; returns the seconds until the next look."""
        for turn in await self._store.exceeding(self._margin):
            await self._stop(turn)
        due = await self._store.next_due(self._margin)
        return self._interval if due is None else min(max(due, _SHORTEST), self._interval)

    async def _stop(self, turn: ExceedingTurn) -> None:
        draft = StopDraft(
            turn.key, mint_id("command"), turn.turn_id, turn.traceparent, self._clock.boottime()
        )
        try:
            stopped = await self._stops.stop_exceeding(draft, self._margin)
        except Exception as error:  # noqa: BLE001 (logged; the next look finds it again)
            self._failures.report(error)
            return
        self._failures.clear()
        if stopped:
            names = {"project": turn.key.project, "session": turn.key.session_id, "turn": turn.turn_id}
            _log.warning("stopping a turn that exceeds its bounds", **names)
            self._stopping()
