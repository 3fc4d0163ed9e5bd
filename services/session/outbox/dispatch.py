"""The dispatch outbox (T3): offers admitted turns to runners, again and again, until one begins them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC
from typing import Final

from moorage.owner.v1.lease_pb2 import Lease
from moorage.runner.v1 import runner_pb2

from services.common.clock import Clock
from services.common.errors import MoorageError
from services.common.logs import get_logger
from services.common.telemetry import use_traceparent
from services.session.clients import Leases, Runners
from services.session.outbox.claims import ATTEMPT, HOLD, ClaimLoop, back_off
from services.session.outbox.offers import Candidates, Claim, candidates
from services.session.runners import PREFIX, Runner, runner_of
from services.session.store.dispatch import DispatchStore
from services.session.store.journal import JournalStore

_ANSWER: Final = 3.0
_KNOWN: Final = 0.5
_SOON: Final = 0.2
# So often the runner that a turn was offered to is asked again before the others.
_SAME: Final = 3

_log: Final = get_logger(__name__)

_REFUSALS: Final = {
    runner_pb2.DISPATCH_RESULT_DRAINING: "is shutting down",
    runner_pb2.DISPATCH_RESULT_FULL: "is full",
    runner_pb2.DISPATCH_RESULT_LEASE_HELD_ELSEWHERE: "found the session driven by another holder",
}


@dataclass(frozen=True, slots=True)
class _Answer:
    """What a runner said, in words too; `result` is UNSPECIFIED when it said nothing."""

    result: runner_pb2.DispatchResult.ValueType
    words: str

    @property
    def accepted(self) -> bool:
        return self.result == runner_pb2.DISPATCH_RESULT_ACCEPTED

    @property
    def driven_elsewhere(self) -> bool:
        return self.result == runner_pb2.DISPATCH_RESULT_LEASE_HELD_ELSEWHERE


@dataclass(frozen=True, slots=True)
class _Outcome:
    """What came of an attempt; `seconds` is the longest that the next one may be off."""

    waiting_reason: str
    seconds: float = float("inf")


class _NotAdmitted(Exception):
    """The turn was begun, or has ended, or another replica has claimed it meanwhile."""


class Dispatcher:
    """Any number of replicas may run it: a turn is claimed by one at a time."""

    def __init__(
        self,
        store: DispatchStore,
        journal: JournalStore,
        leases: Leases,
        runners: Runners,
        clock: Clock,
        *,
        pool: str,
        window: float,
    ) -> None:
        """`window`: seconds after which a turn that no runner began has failed."""
        self._store = store
        self._journal = journal
        self._leases = leases
        self._runners = runners
        self._clock = clock
        self._pool = pool
        self._window = window
        self._loop = ClaimLoop("dispatching a turn", self, clock)
        # Two choices at once would see the same loads and pick the same runner.
        self._choice = asyncio.Lock()
        self._known: list[Runner] = []
        self._known_at = float("-inf")

    def wake(self) -> None:
        """A turn was admitted."""
        self._loop.wake()

    def hand_over(self, claim: Claim) -> None:
        """A turn was admitted, claimed by this replica."""
        self._loop.hand_over(claim)

    async def run(self) -> None:
        """Dispatch until cancelled."""
        await self._loop.run()

    async def claim(self, limit: int) -> Sequence[Claim]:
        """See Outbox."""
        return await self._store.claim(limit, hold=HOLD, window=self._window)

    async def next_due(self) -> float | None:
        """See Outbox."""
        return await self._store.next_due()

    async def handle(self, claim: Claim) -> None:
        """See Outbox."""
        if (outcome := await self._bounded(claim)) is not None:
            seconds = min(back_off(claim.attempts), outcome.seconds)
            await self._store.postpone(claim, seconds, outcome.waiting_reason, window=self._window)

    async def hand_back(self, claim: Claim) -> None:
        """See Outbox."""
        await self._store.postpone(claim, 0.0, "its dispatcher stopped", window=self._window)

    async def _bounded(self, claim: Claim) -> _Outcome | None:
        try:
            async with asyncio.timeout(ATTEMPT):
                return await self._attempt(claim)
        except _NotAdmitted:
            return None
        except TimeoutError:
            _log.warning("offering a turn took too long", seconds=ATTEMPT, **_names(claim))
            return _Outcome("runners take too long to answer")
        except MoorageError as error:
            return _Outcome(str(error))

    async def _attempt(self, claim: Claim) -> _Outcome | None:
        if claim.overdue:
            await self._journal.give_up(claim.key, claim.turn_id, self._window)
            return None
        if claim.kept_by and (outcome := await self._offer_to_keeper(claim)):
            return outcome
        driver = await self._leases.driver(claim.key.resource, timeout=_ANSWER)
        return await (self._offer_to_pool(claim) if driver is None else self._offer_to_driver(claim, driver))

    async def _offer_to_keeper(self, claim: Claim) -> _Outcome | None:
        """Whoever kept the agent mostly has it still; None when it does not take the turn."""
        endpoint = self._leases.endpoint_of(claim.kept_by)
        answer = await self._offer(claim, claim.kept_by, endpoint) if endpoint else None
        return _Outcome(answer.words) if answer and answer.accepted else None

    async def _offer_to_driver(self, claim: Claim, driver: Lease) -> _Outcome:
        """No other runner could take the session while the lease is live."""
        answer = await self._offer(claim, driver.holder, driver.endpoint)
        if answer.accepted:
            return _Outcome(answer.words)
        expire_time = driver.expire_time.ToDatetime(tzinfo=UTC)
        left = (expire_time - self._clock.now()).total_seconds()
        return _Outcome(
            f"{answer.words}, and drives the session until {expire_time:%H:%M:%S}", max(left, _SOON)
        )

    async def _offer_to_pool(self, claim: Claim) -> _Outcome:
        found = candidates(self._pool, claim.profile, await self._live_runners())
        refused: dict[str, str] = {}
        while runner := await self._pick(claim, found, refused):
            answer = await self._offer(claim, runner.holder, runner.endpoint)
            if answer.driven_elsewhere:
                driver = await self._leases.driver(claim.key.resource, timeout=_ANSWER)
                return (
                    _Outcome(answer.words) if driver is None else await self._offer_to_driver(claim, driver)
                )
            if answer.accepted:
                return _Outcome(answer.words)
            refused[runner.endpoint] = answer.words
        return _Outcome(found.why_none(refused))

    async def _pick(self, claim: Claim, found: Candidates, refused: dict[str, str]) -> Runner | None:
        async with self._choice:
            loads = await self._store.loads(claim)
            # Nobody holds the session, so who was asked so often does not begin it: the others first.
            others = {*refused, claim.endpoint} if claim.attempts > _SAME else ()
            runner = found.pick(loads, "", others) if others else None
            runner = runner or found.pick(loads, claim.endpoint, refused)
            if runner is not None:
                await self._count(claim, runner.endpoint)
        return runner

    async def _count(self, claim: Claim, endpoint: str) -> None:
        if not await self._store.offer(claim, endpoint):
            raise _NotAdmitted

    async def _live_runners(self) -> list[Runner]:
        if self._clock.boottime() - self._known_at > _KNOWN:
            leases = await self._leases.list_live(PREFIX)
            self._known = [runner_of(lease.holder, lease.endpoint, lease.labels) for lease in leases]
            self._known_at = self._clock.boottime()
        return self._known

    async def _offer(self, claim: Claim, holder: str, endpoint: str) -> _Answer:
        try:
            # The client's request goes on here, whichever process and whenever it is.
            with use_traceparent(claim.traceparent):
                async with asyncio.timeout(_ANSWER):
                    response = await self._runners.dispatch(
                        endpoint, *claim.key, claim.turn_id, claim.traceparent
                    )
        except (TimeoutError, MoorageError) as error:
            _log.warning(
                "runner not reached", runner=holder, endpoint=endpoint, error=str(error), **_names(claim)
            )
            return _Answer(runner_pb2.DISPATCH_RESULT_UNSPECIFIED, f"runner {holder} cannot be reached")
        words = _REFUSALS.get(response.result, "has taken the turn")
        _log.info("turn offered", runner=holder, result=words, **_names(claim))
        return _Answer(response.result, f"runner {holder} {words}")


def _names(claim: Claim) -> dict[str, str]:
    return {"project": claim.key.project, "session": claim.key.session_id, "turn": claim.turn_id}
