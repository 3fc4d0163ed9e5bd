"""Somebody who watches a session whatever happens to the services: what was told once stays as it was."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TypeVar

import grpc
from moorage.common.v1.record_pb2 import Record
from moorage.session.v1 import session_pb2

from tests.conditions import eventually
from tests.runner.talks import Talks

T = TypeVar("T")

_PATIENCE = 30.0
_PAUSE = 0.05


async def at_last(call: Callable[[], Awaitable[T]]) -> T:
    """What a call gives once no service it needs is away: it is repeated, as clients do it."""
    async with asyncio.timeout(_PATIENCE):
        while True:
            try:
                return await call()
            except grpc.aio.AioRpcError as error:
                if error.code() is not grpc.StatusCode.UNAVAILABLE:
                    raise
            await asyncio.sleep(_PAUSE)


class Witness:
    """Each stream starts at the first record, so that every record is told as often as streams break."""

    def __init__(self, talks: Talks, session_id: str) -> None:
        self.streams = 0
        self.seen: dict[int, Record] = {}
        self._talks = talks
        self._session_id = session_id

    async def watch(self) -> None:
        """For ever; fails as soon as a record is another than before, or one is left out."""
        while True:
            with contextlib.suppress(grpc.aio.AioRpcError):
                await self._watch_once()
            await asyncio.sleep(_PAUSE)

    async def ended(self, turn_id: str, within: float) -> None:
        """The end of the turn was told."""
        await eventually(lambda: self._has_ended(turn_id), within=within, what=f"{turn_id} was told to end")

    async def _watch_once(self) -> None:
        self.streams += 1
        last = 0
        request = session_pb2.WatchSessionRequest(session_id=self._session_id)
        async for response in self._talks.stub.WatchSession(request, wait_for_ready=True):
            if response.HasField("record"):
                last += 1
                self._take(last, response.record)

    def _take(self, expected: int, record: Record) -> None:
        assert record.seq == expected
        assert self.seen.setdefault(record.seq, record) == record

    def _has_ended(self, turn_id: str) -> bool:
        last = self.seen.get(len(self.seen))
        return last is not None and last.turn_id == turn_id and last.body.HasField("turn_ended")


@contextlib.asynccontextmanager
async def witnessed(talks: Talks, session_id: str) -> AsyncIterator[Witness]:
    """The session is watched within the block, which fails with the watch."""
    witness = Witness(talks, session_id)
    async with asyncio.TaskGroup() as tasks:
        watching = tasks.create_task(witness.watch())
        yield witness
        watching.cancel()
