"""A session's records over a connection that may be cut: the last seq is the cursor."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import TYPE_CHECKING

from moorage.common.v1 import record_pb2
from moorage.session.v1 import session_pb2

from services.cli.connection import Connection
from services.cli.patience import Patience, resumed

if TYPE_CHECKING:
    import grpc

    WatchCall = grpc.aio.UnaryStreamCall[session_pb2.WatchSessionRequest, session_pb2.WatchSessionResponse]

_PAGE = 500


async def stored_records(
    connection: Connection, session_id: str, after_seq: int
) -> AsyncGenerator[record_pb2.Record, None]:
    """What is stored now, in order."""
    while True:
        page = await connection.sessions.ListRecords(
            session_pb2.ListRecordsRequest(session_id=session_id, after_seq=after_seq, page_size=_PAGE),
            metadata=connection.metadata,
        )
        for record in page.records:
            yield record
        after_seq = page.next_after_seq
        if not page.records or after_seq >= page.head_seq:
            return


async def watched_records(
    connection: Connection, session_id: str, after_seq: int, patience: Patience
) -> AsyncGenerator[record_pb2.Record, None]:
    """What is stored and then what comes, without end. Raises Cut when the service stays away."""
    request = session_pb2.WatchSessionRequest(session_id=session_id, after_seq=after_seq)

    def watch() -> WatchCall:
        return connection.sessions.WatchSession(request, metadata=connection.metadata)

    async with aclosing(resumed(watch, patience)) as events:
        async for event in events:
            if event.HasField("record"):
                request.after_seq = event.record.seq
                yield event.record
