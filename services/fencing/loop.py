"""The leases of one process: acquired, renewed together, watched, released (F2, F10)."""

from __future__ import annotations

import asyncio
import re
import secrets
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final, TypeVar

import grpc
from moorage.common.v1.errors_pb2 import ErrorReason
from moorage.owner.v1 import lease_pb2
from tenacity import AsyncRetrying, RetryCallState, retry_if_exception_type, wait_random_exponential

from services.common.clock import Clock
from services.common.errors import (
    Aborted,
    DependencyUnavailable,
    FailedPrecondition,
    InvalidArgument,
)
from services.common.logs import get_logger
from services.common.loops import forever
from services.common.validation import mint_id
from services.fencing.alarm import Alarm
from services.fencing.client import UNCERTAIN, LeaseClient
from services.fencing.errors import LeaseHeld, LeaseStale
from services.fencing.leases import HeldLease, Loss
from services.fencing.orphans import Orphans

_BATCH: Final = 1000
_ATTEMPTS: Final = 3
_SHORTEST_ATTEMPT: Final = 1.0
_LONGEST_BACK_OFF: Final = 0.5
_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
_LOSSES: Final = {
    lease_pb2.RENEWAL_STATE_NOT_FOUND: Loss.NOT_FOUND,
    lease_pb2.RENEWAL_STATE_EXPIRED: Loss.EXPIRED,
    lease_pb2.RENEWAL_STATE_STALE: Loss.STALE,
}
_REFUSALS: Final[Mapping[ErrorReason.ValueType, type[LeaseHeld | LeaseStale]]] = {
    LeaseHeld.reason: LeaseHeld,
    LeaseStale.reason: LeaseStale,
}

_log: Final = get_logger(__name__)
T = TypeVar("T")


def mint_holder(name: str) -> str:
    """The holder of this process start, `<name>/<random>`; call it once per process."""
    if not _NAME.fullmatch(name):
        raise InvalidArgument.of("name", "must be 1 to 64 of A-Z a-z 0-9 _ -")
    return f"{name}/{secrets.token_hex(8)}"


class LeaseLoop:
    """Holds leases in the name of one holder; `run` must run while any is held."""

    def __init__(self, holder: str, channel: grpc.aio.Channel, clock: Clock) -> None:
        """The channel leads to owner; one loop per process."""
        self.holder: Final = holder
        self._client = LeaseClient(channel)
        self._clock = clock
        self._held: dict[str, HeldLease] = {}
        self._orphans = Orphans(self._client, clock)
        self._renewals = Alarm(clock)
        self._deadlines = Alarm(clock)

    @property
    def leases(self) -> Mapping[str, HeldLease]:
        """What is held now, by resource."""
        return dict(self._held)

    async def run(self) -> None:
        """Renew all leases at a third of their length and stop what was not renewed in time."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._forever("watching lease deadlines", self._watch))
            tasks.create_task(self._forever("renewing leases", self._renew))
            tasks.create_task(self._forever("releasing unanswered leases", self._orphans.step))

    async def acquire(
        self,
        resource: str,
        *,
        ttl: float,
        endpoint: str = "",
        labels: Mapping[str, str],
        takeover_token: int | None = None,
        timeout: float = 10.0,
    ) -> HeldLease:
        """Take a lease of `ttl` seconds, trying for `timeout` and at most half its length.

        `takeover_token` names the token to replace, at once and also while its lease is live.
        Raises LeaseHeld, LeaseStale, InvalidArgument, or DependencyUnavailable. What a request
        that was cancelled or given up may have got is given back by `run`; what a takeover may
        have got ends by itself.
        """
        request = lease_pb2.AcquireLeaseRequest(
            resource=resource,
            holder=self.holder,
            endpoint=endpoint,
            labels=labels,
            request_id=mint_id("acquire"),
            takeover_token=takeover_token or 0,
        )
        request.ttl.FromMilliseconds(round(ttl * 1000))
        window = min(timeout, ttl / 2)
        try:
            await self._orphans.settle(resource)
            sent_at = self._clock.boottime()
            response = await self._acquire(request, window)
        except UNCERTAIN as error:
            raise DependencyUnavailable(dependency="owner", cause=str(error)) from error
        return self._hold(HeldLease(response, sent_at, self._clock))

    async def release(self, lease: HeldLease, timeout: float = 5.0) -> None:
        """Give a lease back, also a lost one; from the call on it is not renewed any more.

        While owner cannot be reached for `timeout` seconds it is left to end by itself.
        """
        lease.releasing()
        self._forget(lease)
        request = lease_pb2.ReleaseLeaseRequest(
            resource=lease.resource, holder=lease.holder, token=lease.token
        )
        try:
            await self._persist(timeout, lambda each: self._client.release(request, each))
        except Aborted:
            # It had ended before, and another may have it by now.
            pass
        except UNCERTAIN as error:
            _log.warning("lease not released, it ends by itself", resource=lease.resource, error=str(error))

    def leave(self, lease: HeldLease) -> None:
        """Renew a lease no more and do not give it back: nobody gets it before its end."""
        lease.releasing()
        self._forget(lease)

    async def _forever(self, name: str, step: Callable[[], Awaitable[None]]) -> None:
        await forever(name, step, clock=self._clock, longest_delay=_LONGEST_BACK_OFF)

    async def _acquire(
        self, request: lease_pb2.AcquireLeaseRequest, window: float
    ) -> lease_pb2.AcquireLeaseResponse:
        try:
            return await self._persist(window, lambda each: self._client.acquire(request, each))
        except (FailedPrecondition, Aborted) as error:
            if error.reason not in _REFUSALS:
                raise
            raise _REFUSALS[error.reason].received(
                str(error),
                reason_name=error.reason_name,
                metadata=error.metadata,
                retry_after=error.retry_after,
            ) from error
        except (asyncio.CancelledError, *UNCERTAIN):
            # Repeating a takeover might take over only then. And who gives back must have fenced before.
            if not request.takeover_token:
                self._orphans.add(request)
            raise

    def _hold(self, lease: HeldLease) -> HeldLease:
        self._held[lease.resource] = lease
        self._renewals.move()
        self._deadlines.move()
        return lease

    async def _renew(self) -> None:
        await self._renewals.wait(lambda: self._first(lambda lease: lease.renewal_time))
        leases = sorted(self._held.values(), key=lambda lease: lease.renewal_time)
        for start in range(0, len(leases), _BATCH):
            await self._renew_batch(leases[start : start + _BATCH])

    async def _renew_batch(self, leases: Sequence[HeldLease]) -> None:
        request = lease_pb2.RenewLeasesRequest(
            holder=self.holder,
            renewals=[lease_pb2.LeaseRenewal(resource=each.resource, token=each.token) for each in leases],
        )
        sent_at = self._clock.boottime()
        response = await self._client.renew(request, min(lease.ttl for lease in leases) / _ATTEMPTS)
        results = list(zip(leases, response.results, strict=True))
        for lease, result in results:
            self._take(lease, result, sent_at)
        if unknown := [lease.resource for lease, result in results if not _is_known(result)]:
            raise ValueError(f"owner gave no known result for {unknown}")

    def _take(self, lease: HeldLease, result: lease_pb2.RenewalResult, sent_at: float) -> None:
        if self._held.get(lease.resource) is not lease:
            return
        if result.state == lease_pb2.RENEWAL_STATE_RENEWED:
            lease.renewed(result.grant, result.expire_time, sent_at)
        elif result.state in _LOSSES:
            self._lose(lease, _LOSSES[result.state])

    async def _watch(self) -> None:
        await self._deadlines.wait(lambda: self._first(lambda lease: lease.deadline))
        now = self._clock.boottime()
        for lease in [each for each in self._held.values() if each.deadline <= now]:
            self._lose(lease, Loss.DEADLINE)

    def _first(self, time: Callable[[HeldLease], float]) -> float:
        return min((time(lease) for lease in self._held.values()), default=float("inf"))

    def _lose(self, lease: HeldLease, loss: Loss) -> None:
        self._forget(lease)
        lease.lose(loss)

    def _forget(self, lease: HeldLease) -> None:
        if self._held.get(lease.resource) is lease:
            del self._held[lease.resource]

    async def _persist(self, window: float, call: Callable[[float], Awaitable[T]]) -> T:
        """Repeat `call(timeout)` while its effect is uncertain, for `window` seconds."""
        until = self._clock.boottime() + window
        # A replica that hangs leaves time for another, unless that is too short for any. No
        # window means one attempt, which needs its time as well.
        timeout = max(window / _ATTEMPTS, min(window, _SHORTEST_ATTEMPT)) or _SHORTEST_ATTEMPT

        async def attempt() -> T:
            return await call(timeout)

        def is_over(state: RetryCallState) -> bool:
            return self._clock.boottime() + state.upcoming_sleep >= until

        retrying = AsyncRetrying(
            sleep=self._clock.sleep,
            stop=is_over,
            wait=wait_random_exponential(multiplier=0.05, max=1.0),
            retry=retry_if_exception_type(UNCERTAIN),
            reraise=True,
        )
        return await retrying(attempt)


def _is_known(result: lease_pb2.RenewalResult) -> bool:
    return result.state == lease_pb2.RENEWAL_STATE_RENEWED or result.state in _LOSSES
