"""A lease as its holder sees it (F2): what to show, and until when to work."""

from __future__ import annotations

import asyncio
import enum
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Final, TypeVar

from google.protobuf.timestamp_pb2 import Timestamp
from moorage.common.v1.grant_pb2 import Grant
from moorage.owner.v1 import lease_pb2

from services.common.clock import Clock
from services.common.logs import get_logger

_WORKING_SHARE: Final = 0.9
_RENEWAL_SHARE: Final = 1 / 3

_log: Final = get_logger(__name__)
T = TypeVar("T")


class Loss(enum.Enum):
    """How a lease was lost."""

    NOT_FOUND = "NOT_FOUND"  # owner knows no such lease
    EXPIRED = "EXPIRED"  # it ended before a renewal reached owner
    STALE = "STALE"  # another holder or token has it
    DEADLINE = "DEADLINE"  # nine tenths of its length passed without a renewal


class HeldLease:
    """A lease of this process, made by LeaseLoop.acquire.

    Times are counted from before the request was sent, so that they end before owner's do,
    however long the answer took.
    """

    def __init__(self, response: lease_pb2.AcquireLeaseResponse, sent_at: float, clock: Clock) -> None:
        """`sent_at`: the boot time before the first attempt of the request was sent."""
        lease = response.lease
        self.resource: Final = lease.resource
        self.holder: Final = lease.holder
        self.token: Final = lease.token
        self.ttl: Final = lease.ttl.ToMilliseconds() / 1000
        self.endpoint: Final = lease.endpoint
        self.labels: Final[Mapping[str, str]] = MappingProxyType(dict(lease.labels))
        # Until when a holder that was taken over may act; None when there is none such.
        self.replaced_expire_time: Final = _replaced(response)
        self.lost: Final = asyncio.Event()
        self.loss: Loss | None = None
        self._clock = clock
        self._released = False
        self._callbacks: list[Callable[[HeldLease], None]] = []
        self._followers: list[Callable[[Grant], None]] = []
        self.renewed(response.grant, lease.expire_time, sent_at)

    @property
    def grant(self) -> Grant:
        """The newest grant; read it anew for each message."""
        return self._grant

    @property
    def expire_time(self) -> datetime:
        """When the newest grant ends, by the owner database's clock."""
        return self._expire_time

    @property
    def deadline(self) -> float:
        """The boot time at which this process's own work under the lease must have stopped."""
        return self._sent_at + self.ttl * _WORKING_SHARE

    @property
    def renewal_time(self) -> float:
        """The boot time at which it is renewed."""
        return self._sent_at + self.ttl * _RENEWAL_SHARE

    @property
    def held(self) -> bool:
        """Whether work may go on: not lost, not being released, deadline not passed."""
        return not self._released and self.loss is None and self._clock.boottime() < self.deadline

    def on_lost(self, callback: Callable[[HeldLease], None]) -> None:
        """Call back once, synchronously, when it is lost; at once if it already is."""
        if self.loss is None:
            self._callbacks.append(callback)
        else:
            self._notify(callback, self)

    @contextmanager
    def followed_by(self, show: Callable[[Grant], None]) -> Iterator[None]:
        """Within the block call back, synchronously, with each grant that replaces the one before."""
        self._followers.append(show)
        try:
            yield
        finally:
            self._followers.remove(show)

    def renewed(self, grant: Grant, expire_time: Timestamp, sent_at: float) -> None:
        """Take over what owner answered to a request sent at this boot time. For the loop."""
        self._grant = grant
        self._expire_time = expire_time.ToDatetime(tzinfo=UTC)
        self._sent_at = sent_at
        for show in list(self._followers):
            self._notify(show, grant)

    def releasing(self) -> None:
        """Stop being held because its holder gives it back. For the loop."""
        self._released = True
        self._callbacks.clear()

    def lose(self, loss: Loss) -> None:
        """Stop being held against its holder's will, once. For the loop."""
        if self.loss is not None or self._released:
            return
        self.loss = loss
        _log.warning("lease lost", resource=self.resource, token=self.token, loss=loss.value)
        self.lost.set()
        callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            self._notify(callback, self)

    def _notify(self, callback: Callable[[T], None], news: T) -> None:
        try:
            callback(news)
        except Exception:  # noqa: BLE001 (logged)
            # One holder's mistake must not keep the others from stopping.
            _log.exception("a callback of a lease failed", resource=self.resource)


def _replaced(response: lease_pb2.AcquireLeaseResponse) -> datetime | None:
    if not response.HasField("replaced_expire_time"):
        return None
    return response.replaced_expire_time.ToDatetime(tzinfo=UTC)
