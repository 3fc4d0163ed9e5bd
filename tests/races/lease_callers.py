"""Callers that acquire, repeat, renew and release at random, and write down what they were answered."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import TypeVar

import grpc
from moorage.owner.v1 import lease_pb2

from services.common.errors import Aborted, FailedPrecondition
from tests.owner.replicas import Holder
from tests.races.lease_history import Answer, Event

T = TypeVar("T")

TTLS = (0.1, 0.2, 0.4)
_RENEWALS = {
    lease_pb2.RENEWAL_STATE_RENEWED: Answer.RENEWED,
    lease_pb2.RENEWAL_STATE_NOT_FOUND: Answer.NOT_FOUND,
    lease_pb2.RENEWAL_STATE_EXPIRED: Answer.EXPIRED,
    lease_pb2.RENEWAL_STATE_STALE: Answer.STALE,
}


@dataclass(frozen=True, slots=True)
class _Asked:
    """An acquisition that may be repeated."""

    resource: str
    ttl: float
    request_id: str


class Caller:
    """One holder. Its choices follow from the seed; how calls meet does not."""

    def __init__(
        self, name: str, channels: Sequence[grpc.aio.Channel], resources: Sequence[str], seed: str
    ) -> None:
        self.history: list[Event] = []
        self._name = name
        self._holders = [Holder(channel, name) for channel in channels]
        self._resources = resources
        self._random = random.Random(f"{seed} {name}")
        self._tokens: dict[str, int] = {}
        self._asked: list[_Asked] = []

    async def run(self, calls: int) -> None:
        """Make so many calls, one after another."""
        actions: list[Callable[[], Awaitable[None]]] = [
            *[self._acquire] * 5,
            *[self._repeat] * 2,
            *[self._renew] * 5,
            *[self._release] * 2,
        ]
        for _ in range(calls):
            await self._random.choice(actions)()

    @property
    def _holder(self) -> Holder:
        """By way of any replica."""
        return self._random.choice(self._holders)

    async def _acquire(self) -> None:
        request_id = f"{self._name}-{len(self.history)}" if self._random.random() < 0.8 else ""
        asked = _Asked(self._random.choice(self._resources), self._random.choice(TTLS), request_id)
        if request_id:
            self._asked.append(asked)
        await self._ask(asked)

    async def _repeat(self) -> None:
        if self._asked:
            await self._ask(self._random.choice(self._asked[-3:]))

    async def _ask(self, asked: _Asked) -> None:
        event = self._begin("acquire", asked.resource, asked.ttl, request_id=asked.request_id)
        try:
            call = self._holder.acquire(asked.resource, asked.ttl, request_id=asked.request_id)
            lease = (await self._perhaps_cut(call)).lease
        except FailedPrecondition as error:
            end = datetime.fromisoformat(error.metadata["expire_time"])
            self._end(event, Answer.HELD, named=error.metadata["holder"], expires_at=end)
        except Aborted:
            self._end(event, Answer.ENDED)
        except TimeoutError:
            self._end(event, Answer.UNKNOWN)
        else:
            self._tokens[asked.resource] = lease.token
            acquired, expires = (
                time.ToDatetime(tzinfo=UTC) for time in (lease.acquire_time, lease.expire_time)
            )
            self._end(event, Answer.GRANTED, token=lease.token, acquired_at=acquired, expires_at=expires)

    async def _renew(self) -> None:
        """Several at once, in any order, some with a token of the past or of another."""
        named = self._random.sample(self._resources, self._random.randint(1, len(self._resources)))
        items = [(resource, self._some_token(resource)) for resource in named]
        events = [self._begin("renew", resource, token=token) for resource, token in items]
        results = await self._holder.renew(*items)
        for event, result in zip(events, results, strict=True):
            end = result.expire_time.ToDatetime(tzinfo=UTC) if result.HasField("expire_time") else None
            self._end(event, _RENEWALS[result.state], expires_at=end)

    async def _release(self) -> None:
        resource = self._random.choice(self._resources)
        event = self._begin("release", resource, token=self._some_token(resource))
        try:
            lease = await self._perhaps_cut(self._holder.release(resource, event.token))
        except Aborted:
            self._end(event, Answer.STALE)
        except TimeoutError:
            self._end(event, Answer.UNKNOWN)
        else:
            self._end(event, Answer.RELEASED, expires_at=lease.expire_time.ToDatetime(tzinfo=UTC))

    def _some_token(self, resource: str) -> int:
        token = self._tokens.get(resource, 1)
        return max(1, token + self._random.choice((-1, 1))) if self._random.random() < 0.1 else token

    async def _perhaps_cut(self, call: Awaitable[T]) -> T:
        """Now and then go away in the middle of a call; it may take effect all the same."""
        patience = self._random.uniform(0.001, 0.01) if self._random.random() < 0.1 else None
        async with asyncio.timeout(patience):
            return await call

    def _begin(
        self, call: str, resource: str, ttl: float = 0.0, *, token: int = 0, request_id: str = ""
    ) -> Event:
        now = datetime.now(UTC)
        return Event(
            call,
            resource,
            self._name,
            now,
            now,
            Answer.UNKNOWN,
            token=token,
            request_id=request_id,
            ttl=timedelta(seconds=ttl),
        )

    def _end(self, event: Event, answer: Answer, **told: object) -> None:
        self.history.append(replace(event, ended=datetime.now(UTC), answer=answer, **told))  # type: ignore[arg-type]
