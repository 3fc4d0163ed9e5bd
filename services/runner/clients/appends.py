"""The records of all turns of this process, appended over one stream (R2, R3)."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final

import grpc
from moorage.session.v1 import journal_pb2
from moorage.session.v1.journal_pb2_grpc import JournalServiceStub

from services.common.clock import Clock
from services.common.errors import DependencyUnavailable
from services.common.loops import forever
from services.common.status import from_rpc_error
from services.fencing.leases import HeldLease
from services.runner.clients.sources import Source
from services.runner.endings import TurnAbandoned
from services.runner.executions import Attempt
from services.runner.records import RecordBuffer

if TYPE_CHECKING:
    from moorage.session.v1.journal_pb2_grpc import JournalServiceAsyncStub

_BATCH_RECORDS: Final = 500
_BATCH_BYTES: Final = 1024 * 1024
# What a record is wrapped in: its grant and its names.
_ENVELOPE_BYTES: Final = 2048
_LONGEST_DELAY: Final = 2.0

_Batch = list[tuple[Source, journal_pb2.RecordAppend]]
_Call = grpc.aio.StreamStreamCall[journal_pb2.AppendRecordsRequest, journal_pb2.AppendRecordsResponse]


class Appender:
    """One request is on its way at a time, and holds what came together since the one before.

    So the records of many turns share transactions exactly when there are many, and what
    waits is bounded by the buffers.
    """

    def __init__(self, channel: grpc.aio.Channel, clock: Clock, timeout: float) -> None:
        """The channel leads to the journal; a request unanswered for `timeout` seconds is sent anew."""
        self._stub: JournalServiceAsyncStub = JournalServiceStub(channel)
        self._clock = clock
        self._timeout = timeout
        self._sources: deque[Source] = deque()
        self._filled = asyncio.Event()
        self._call: _Call | None = None

    @asynccontextmanager
    async def records(
        self, attempt: Attempt, lease: HeldLease, refused: Callable[[TurnAbandoned], None]
    ) -> AsyncIterator[RecordBuffer]:
        """A turn's buffer; `refused` is called when nothing of it will be stored any more."""
        source = Source(attempt, lease, RecordBuffer(self._filled.set), refused)
        self._sources.append(source)
        try:
            yield source.buffer
        finally:
            self._sources.remove(source)

    async def run(self) -> None:
        """Append until cancelled, over every restart of the session service."""
        try:
            await forever("appending records", self._step, clock=self._clock, longest_delay=_LONGEST_DELAY)
        finally:
            self._close()

    async def _step(self) -> None:
        batch = await self._next_batch()
        try:
            response = await self._exchange([append for _, append in batch])
            answers = zip(batch, response.results, strict=True)
            stored = [source.settle(append, result) for (source, append), result in answers]
        except BaseException:
            self._close()
            for source, _ in batch:
                source.buffer.resend()
            raise
        if not all(stored):
            raise DependencyUnavailable(dependency="journal", cause="it cannot store some records now")

    async def _exchange(self, appends: list[journal_pb2.RecordAppend]) -> journal_pb2.AppendRecordsResponse:
        if self._call is None or self._call.done():
            self._call = self._stub.AppendRecords()
        try:
            async with asyncio.timeout(self._timeout):
                await self._call.write(journal_pb2.AppendRecordsRequest(appends=appends))
                response = await self._call.read()
        except grpc.aio.AioRpcError as error:
            raise from_rpc_error(error) from error
        except (TimeoutError, asyncio.InvalidStateError) as error:
            raise DependencyUnavailable(dependency="journal", cause="it does not answer") from error
        if not isinstance(response, journal_pb2.AppendRecordsResponse):
            raise DependencyUnavailable(dependency="journal", cause="the stream ended")
        return response

    async def _next_batch(self) -> _Batch:
        while not (batch := self._collect()):
            self._filled.clear()
            await self._filled.wait()
        return batch

    def _collect(self) -> _Batch:
        """A record of each source in turn, beginning with another source each time."""
        batch: _Batch = []
        size = 0
        self._sources.rotate(-1)
        waiting = deque(self._sources)
        while waiting and len(batch) < _BATCH_RECORDS:
            source = waiting.popleft()
            if size + source.buffer.next_size + _ENVELOPE_BYTES > _BATCH_BYTES:
                continue
            if append := source.take():
                batch.append((source, append))
                size += append.ByteSize()
                waiting.append(source)
        return batch

    def _close(self) -> None:
        call, self._call = self._call, None
        if call is not None:
            call.cancel()
