"""How long an exec may live by the grants shown on its stream (F6)."""

from __future__ import annotations

from typing import Final

from services.common.clock import Clock
from services.fencing.errors import LeaseExpired
from services.fencing.grants import GrantClaims
from services.workspace.exec.execs import Exec
from services.workspace.exec.process import Process

# A grant with little left keeps most of it: the margin is at most this share of what is left.
_LARGEST_SHARE: Final = 0.25


class Validity:
    """Ends an exec shortly before its newest grant does, so that all is dead before somebody else's turn.

    The margin covers what killing takes and what our clock is behind the owner database's; the
    tolerated skew is not added. It is counted on the boot clock from when the grant was shown.
    """

    def __init__(self, which: Exec, claims: GrantClaims, clock: Clock, margin: float) -> None:
        """`claims` are of the grant that the exec was started with; `margin` is in seconds."""
        self._which = which
        self._claims = claims
        self._clock = clock
        self._margin = margin
        self._deadline, self._latest = self._deadlines_of(claims)

    def tell(self, process: Process) -> None:
        """Until when it may live. It comes first to end it: what ends by itself ends a little later."""
        process.live_until(self._latest)

    def extend(self, claims: GrantClaims) -> None:
        """A grant of the same token was shown; an older one changes nothing."""
        if claims.expire_time > self._claims.expire_time:
            self._claims = claims
            self._deadline, self._latest = self._deadlines_of(claims)
            if self._which.process is not None:
                self.tell(self._which.process)

    def check(self) -> None:
        """Raise LeaseExpired when it is over."""
        if self._clock.boottime() >= self._deadline:
            raise self._expired()

    async def run(self) -> None:
        """End the exec when it is over."""
        while (left := self._deadline - self._clock.boottime()) > 0:
            await self._clock.sleep(left)
        self._which.end(self._expired())

    def _deadlines_of(self, claims: GrantClaims) -> tuple[float, float]:
        left = (claims.expire_time - self._clock.now()).total_seconds()
        margin = min(self._margin, max(left, 0.0) * _LARGEST_SHARE)
        end = self._clock.boottime() + left
        return end - margin, end - margin / 2

    def _expired(self) -> LeaseExpired:
        return LeaseExpired(
            resource=self._claims.resource,
            holder=self._claims.holder,
            token=self._claims.token,
            expire_time=self._claims.expire_time,
        )
