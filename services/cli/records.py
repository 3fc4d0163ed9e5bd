"""A session's records over a connection that may be cut: the last seq is the cursor."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import grpc
from moorage.common.v1 import record_pb2
from moorage.session.v1 import session_pb2

from services.cli.connection import Connection

_PAGE = 500
_ATTEMPTS = 6
_FIRST_WAIT = 0.1
_LONGEST_WAIT = 5.0


async def stored_records(
    connection: Connection, session_id: str, after_seq: int
) -> AsyncIterator[record_pb2.Record]:
    """What is stored now, in order."""
    while True:
        page = await connection.sessions.ListRecords(
            session_pb2.ListRecordsRequest(session_id=session_id, after_seq=after_seq, page_size=_PAGE),
            metadata=connection.metadata,
        )
        for record in page.records:
            yield record
        after_seq = page.next_after_seq
        if after_seq >= page.head_seq:
            return


async def watched_records(
    connection: Connection, session_id: str, after_seq: int
) -> AsyncIterator[record_pb2.Record]:
    """What is stored and then what comes, without end; raises the call's error when retries run out."""
    failures = 0
    while True:
        call = connection.sessions.WatchSession(
            session_pb2.WatchSessionRequest(session_id=session_id, after_seq=after_seq),
            metadata=connection.metadata,
        )
        try:
            async for event in call:
                failures = 0
                if event.HasField("record"):
                    after_seq = event.record.seq
                    yield event.record
        except grpc.aio.AioRpcError as error:
            failures += 1
            if error.code() is not grpc.StatusCode.UNAVAILABLE or failures >= _ATTEMPTS:
                raise
            await asyncio.sleep(min(_LONGEST_WAIT, _FIRST_WAIT * 2**failures))
