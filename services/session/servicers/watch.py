"""SessionService: the RPCs that read the transcript."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from functools import partial

from moorage.session.v1 import session_pb2

from services.common.errors import InvalidArgument
from services.common.pages import MAX_PAGE_SIZE, page_size
from services.common.validation import check_id
from services.session import convert_records
from services.session.messages import read_messages
from services.session.records import Heartbeat, Record, RecordPage
from services.session.store.records import RecordStore
from services.session.store.rows import PAGE_BYTES
from services.session.watch.watching import Watching


class WatchMethods:
    """Unpacks requests, lets the store and the watch work, packs responses."""

    def __init__(self, watching: Watching, records: RecordStore) -> None:
        """Watches of this process, and pages of the transcript."""
        self._watching = watching
        self._records = records

    async def list_records(
        self, project: str, request: session_pb2.ListRecordsRequest
    ) -> session_pb2.ListRecordsResponse:
        """ListRecords."""
        session_id = check_id("session_id", request.session_id)
        after_seq = _check_cursor(request.after_seq)
        limit = page_size("page_size", request.page_size)
        page = await self._read(request.view, project, session_id, after_seq, limit)
        return session_pb2.ListRecordsResponse(
            records=map(convert_records.record, page.records),
            next_after_seq=page.records[-1].seq if page.records else after_seq,
            head_seq=page.head_seq,
        )

    async def _read(
        self,
        view: session_pb2.RecordView.ValueType,
        project: str,
        session_id: str,
        after_seq: int,
        limit: int,
    ) -> RecordPage:
        match view:
            case session_pb2.RECORD_VIEW_UNSPECIFIED | session_pb2.RECORD_VIEW_CHUNKS:
                return await self._records.page(project, session_id, after_seq, limit=limit)
            case session_pb2.RECORD_VIEW_MESSAGES:
                read = partial(self._records.page, project, session_id, limit=MAX_PAGE_SIZE)
                return await read_messages(read, after_seq, limit=limit, size=PAGE_BYTES)
            case _:
                raise InvalidArgument.of("view", f"{int(view)} is no view")

    async def watch_session(
        self, project: str, request: session_pb2.WatchSessionRequest
    ) -> AsyncGenerator[session_pb2.WatchSessionResponse, None]:
        """WatchSession."""
        session_id = check_id("session_id", request.session_id)
        events = self._watching.watch_session(project, session_id, _check_cursor(request.after_seq))
        async with aclosing(events):
            async for event in events:
                yield _response(event)


def _check_cursor(after_seq: int) -> int:
    if after_seq < 0:
        raise InvalidArgument.of("after_seq", "must not be negative")
    return after_seq


def _response(event: Record | Heartbeat) -> session_pb2.WatchSessionResponse:
    match event:
        case Record():
            return session_pb2.WatchSessionResponse(record=convert_records.record(event))
        case Heartbeat():
            return session_pb2.WatchSessionResponse(heartbeat=convert_records.heartbeat(event))
