"""SQL of histories: the transcript before a turn, backwards, as far as it fits."""

from __future__ import annotations

from typing import Final

from services.common.database import Connection, Database
from services.session.history import LEFT_OUT, History
from services.session.journal.calls import HistoryCall
from services.session.journal.rules import SessionKey
from services.session.records import Record, RecordKind, record_id
from services.session.store.fence import Fence
from services.session.store.records import record_of
from services.session.store.rows import PAGE_BYTES, snapshot
from services.session.store.sessions import read_session
from services.session.store.turns import read_turn

_PAGE: Final = 200


class HistoryStore:
    """Reads histories for holders."""

    def __init__(self, database: Database, fence: Fence) -> None:
        """A holder's grant is judged by the fence, as for a write."""
        self._database = database
        self._fence = fence

    async def read(self, call: HistoryCall) -> History:
        """The newest of what was said before the turn. Raises what the fence refuses with, and NotFound."""
        shown = await self._fence.look(call.grant, call.key)
        async with snapshot(self._database) as connection:
            session = await read_session(connection, *call.key)
            turn = await read_turn(connection, *call.key, call.before_turn_id)
            await self._fence.let_read(session, shown)
            history = History(call.max_bytes)
            await _fill(connection, call.key, turn.first_seq, history)
            if history.truncated and (prompt := await _prompt(connection, call.key, history.cut_turn_id)):
                history.keep_prompt(prompt)
        return history


async def _fill(connection: Connection, key: SessionKey, before_seq: int, history: History) -> None:
    while records := await _older(connection, key, before_seq):
        for record in records:
            if not history.take(record):
                return
        before_seq = records[-1].seq


async def _older(connection: Connection, key: SessionKey, before_seq: int) -> list[Record]:
    """The newest records below a seq, newest first, about 1 MiB of them; at least one if there is any."""
    rows = await connection.fetch(
        """
        SELECT * FROM (
            SELECT older.*, sum(octet_length(body)) OVER (ORDER BY seq DESC) - octet_length(body) AS bytes_before
            FROM (
                SELECT * FROM session.records
                WHERE project = $1 AND session_id = $2 AND seq < $3 AND kind <> ALL($4::text[])
                ORDER BY seq DESC
                LIMIT $5
            ) AS older
        ) AS page
        WHERE bytes_before < $6
        ORDER BY seq DESC
        """,
        *key,
        before_seq,
        LEFT_OUT,
        _PAGE,
        PAGE_BYTES,
    )
    return [record_of(key.session_id, row) for row in rows]


async def _prompt(connection: Connection, key: SessionKey, turn_id: str) -> Record | None:
    row = await connection.fetchrow(
        "SELECT * FROM session.records WHERE project = $1 AND session_id = $2 AND record_id = $3",
        *key,
        record_id(turn_id, RecordKind.USER_MESSAGE),
    )
    return record_of(key.session_id, row) if row else None
