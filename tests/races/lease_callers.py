"""Callers that follow a script of bytes: they acquire, take over, repeat, renew, release, and write down all answers."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import TypeVar

import grpc
from google.protobuf.timestamp_pb2 import Timestamp
from moorage.owner.v1 import lease_pb2

from services.common.errors import Aborted, FailedPrecondition
from services.fencing.client import UNCERTAIN
from tests.owner.replicas import SERVICE, Holder
from tests.races.lease_history import Answer, Event

T = TypeVar("T")

TTLS = (0.1, 0.2, 0.4)
# What a script uses up for each call.
BYTES = 3
# As any client's that gets no answer.
_BACK_OFF = 0.02
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
    takeover_token: int

    @property
    def call(self) -> str:
        return "takeover" if self.takeover_token else "acquire"


@dataclass(frozen=True, slots=True)
class _Step:
    """Three bytes as what to do, to what, and how."""

    action: int
    target: int
    manner: int

    @property
    def is_cut(self) -> bool:
        """Whether the caller goes away in the middle of the call."""
        return self.manner % 10 == 9

    @property
    def offset(self) -> int:
        """How far beside the right token."""
        return (-1, 1)[self.manner % 2] if self.manner // 10 % 8 == 7 else 0


class Caller:
    """One holder. What it does follows from its script; how calls meet does not.

    `board` holds the newest token of each resource that any of the callers was told.
    """

    def __init__(
        self,
        name: str,
        channels: Sequence[grpc.aio.Channel],
        resources: Sequence[str],
        script: bytes,
        board: dict[str, int],
    ) -> None:
        self.history: list[Event] = []
        self._name = name
        self._holders = [Holder(channel, name) for channel in channels]
        self._resources = resources
        self._script = script
        self._board = board
        self._tokens: dict[str, int] = {}
        self._asked: list[_Asked] = []
        self._is_stopped = False

    async def run(self) -> None:
        """Make the calls of the script, one after another."""
        actions: list[Callable[[_Step], Awaitable[None]]] = [
            *[self._acquire] * 5,
            *[self._repeat] * 2,
            *[self._renew] * 5,
            *[self._release] * 2,
            *[self._take_over] * 2,
        ]
        for step in self._steps():
            await actions[step.action % len(actions)](step)

    def stop(self) -> None:
        """Make no more calls."""
        self._is_stopped = True

    def _steps(self) -> Iterator[_Step]:
        for start in range(0, len(self._script), BYTES):
            if self._is_stopped:
                return
            yield _Step(*self._script[start : start + BYTES])

    def _resource(self, step: _Step) -> str:
        return self._resources[step.target % len(self._resources)]

    def _holder(self, step: _Step) -> Holder:
        """By way of any replica."""
        return self._holders[step.target // 16 % len(self._holders)]

    async def _acquire(self, step: _Step) -> None:
        await self._ask_for(step, 0)

    async def _take_over(self, step: _Step) -> None:
        token = self._board.get(self._resource(step), 1)
        await self._ask_for(step, max(1, token + step.offset))

    async def _ask_for(self, step: _Step, takeover_token: int) -> None:
        request_id = f"{self._name}-{len(self.history)}" if step.manner % 5 else ""
        ttl = TTLS[step.action // 16 % len(TTLS)]
        asked = _Asked(self._resource(step), ttl, request_id, takeover_token)
        if request_id:
            self._asked.append(asked)
        await self._ask(step, asked)

    async def _repeat(self, step: _Step) -> None:
        if self._asked:
            await self._ask(step, self._asked[-1 - step.manner % min(3, len(self._asked))])

    async def _ask(self, step: _Step, asked: _Asked) -> None:
        event = self._begin(
            asked.call,
            asked.resource,
            asked.ttl,
            request_id=asked.request_id,
            replaces=asked.takeover_token,
        )
        try:
            call = self._holder(step).acquire(
                asked.resource,
                asked.ttl,
                request_id=asked.request_id,
                labels=SERVICE,
                takeover_token=asked.takeover_token,
            )
            response = await _perhaps_cut(step, call)
        except FailedPrecondition as error:
            end = datetime.fromisoformat(error.metadata["expire_time"])
            self._end(event, Answer.HELD, named=error.metadata["holder"], expires_at=end)
        except Aborted as error:
            # A repeated call is told its request id, a takeover the token that it named.
            self._end(event, Answer.ENDED if "request_id" in error.metadata else Answer.STALE)
        except (TimeoutError, *UNCERTAIN):
            await self._unanswered(event)
        else:
            self._granted(event, response)

    async def _unanswered(self, *events: Event) -> None:
        for event in events:
            self._end(event, Answer.UNKNOWN)
        await asyncio.sleep(_BACK_OFF)

    def _granted(self, event: Event, response: lease_pb2.AcquireLeaseResponse) -> None:
        lease = response.lease
        self._tokens[lease.resource] = lease.token
        self._board[lease.resource] = max(lease.token, self._board.get(lease.resource, 0))
        has_replaced = response.HasField("replaced_expire_time")
        self._end(
            event,
            Answer.GRANTED,
            token=lease.token,
            acquired_at=_time(lease.acquire_time),
            expires_at=_time(lease.expire_time),
            replaced_until=_time(response.replaced_expire_time) if has_replaced else None,
        )

    async def _renew(self, step: _Step) -> None:
        """Several at once, in any order, some with a token of the past or of another."""
        count = 1 + step.manner % len(self._resources)
        named = [*self._resources, *self._resources][step.target % len(self._resources) :][:count]
        items = [(resource, self._some_token(resource, step)) for resource in named]
        events = [self._begin("renew", resource, token=token) for resource, token in items]
        try:
            results = await self._holder(step).renew(*items)
        except UNCERTAIN:
            await self._unanswered(*events)
            return
        for event, result in zip(events, results, strict=True):
            end = _time(result.expire_time) if result.HasField("expire_time") else None
            self._end(event, _RENEWALS[result.state], expires_at=end)

    async def _release(self, step: _Step) -> None:
        resource = self._resource(step)
        event = self._begin("release", resource, token=self._some_token(resource, step))
        try:
            lease = await _perhaps_cut(step, self._holder(step).release(resource, event.token))
        except Aborted:
            self._end(event, Answer.STALE)
        except (TimeoutError, *UNCERTAIN):
            await self._unanswered(event)
        else:
            self._end(event, Answer.RELEASED, expires_at=_time(lease.expire_time))

    def _some_token(self, resource: str, step: _Step) -> int:
        return max(1, self._tokens.get(resource, 1) + step.offset)

    def _begin(
        self,
        call: str,
        resource: str,
        ttl: float = 0.0,
        *,
        token: int = 0,
        request_id: str = "",
        replaces: int = 0,
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
            replaces=replaces,
        )

    def _end(self, event: Event, answer: Answer, **told: object) -> None:
        self.history.append(replace(event, ended=datetime.now(UTC), answer=answer, **told))  # type: ignore[arg-type]


def callers_of(channels: Sequence[grpc.aio.Channel], scripts: Sequence[bytes], name: str) -> list[Caller]:
    """One for each script, on three resources of this name."""
    resources, board = [f"round-{name}/{number}" for number in range(3)], dict[str, int]()
    return [
        Caller(f"caller-{number}/{name}", channels, resources, script, board)
        for number, script in enumerate(scripts)
    ]


async def play(callers: Sequence[Caller]) -> list[Event]:
    """What they were answered who follow their scripts at the same time."""
    await asyncio.gather(*(caller.run() for caller in callers))
    return [event for caller in callers for event in caller.history]


async def _perhaps_cut(step: _Step, call: Awaitable[T]) -> T:
    """Now and then go away in the middle of a call; it may take effect all the same."""
    patience = 0.001 + step.manner / 25_600 if step.is_cut else None
    async with asyncio.timeout(patience):
        return await call


def _time(timestamp: Timestamp) -> datetime:
    return timestamp.ToDatetime(tzinfo=UTC)
