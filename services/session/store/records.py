"""SQL of the transcript: reading pages."""

from __future__ import annotations

import asyncpg

from services.common.database import Database
from services.session.records import CursorOutOfRange, Record, RecordPage
from services.session.sessions import SessionNotFound
from services.session.store.rows import PAGE_BYTES


class RecordStore:
    """Reads records."""

    def __init__(self, database: Database) -> None:
        """Read from this database."""
        self._database = database

    async def page(
        self, project: str, session_id: str, after_seq: int, *, limit: int, turn_id: str | None = None
    ) -> RecordPage:
        """The records after a seq, at most `limit` and about 1 MiB, at least one if there is any.

        With `turn_id` only that turn's. Raises SessionNotFound, CursorOutOfRange.
        """
        async with self._database.connection() as connection:
            rows = await connection.fetch(
                """
                SELECT session.head_seq, page.*
                FROM session.sessions AS session
                LEFT JOIN LATERAL (
                    SELECT record.*,
                           sum(octet_length(record.body)) OVER (ORDER BY record.seq) AS bytes,
                           row_number() OVER (ORDER BY record.seq) AS place
                    FROM (
                        SELECT seq, turn_id, turn_seq, record_id, kind, body, create_time
                        FROM session.records
                        WHERE project = $1 AND session_id = $2 AND seq > $3
                          AND ($5::text IS NULL OR turn_id = $5)
                        ORDER BY seq
                        LIMIT $4
                    ) AS record
                ) AS page ON page.bytes <= $6 OR page.place = 1
                WHERE session.project = $1 AND session.session_id = $2 AND session.state <> 'DELETED'
                ORDER BY page.seq
                """,
                project,
                session_id,
                after_seq,
                limit,
                turn_id,
                PAGE_BYTES,
            )
        if not rows:
            raise SessionNotFound(project=project, session_id=session_id)
        head_seq: int = rows[0]["head_seq"]
        if after_seq > head_seq:
            raise CursorOutOfRange(session_id=session_id, after_seq=after_seq, head_seq=head_seq)
        found = tuple(record_of(session_id, row) for row in rows if row["seq"] is not None)
        return RecordPage(found, head_seq)


def record_of(session_id: str, row: asyncpg.Record) -> Record:
    """A whole row of session.records."""
    return Record(
        session_id=session_id,
        seq=row["seq"],
        turn_id=row["turn_id"],
        turn_seq=row["turn_seq"] or 0,
        record_id=row["record_id"] or "",
        kind=row["kind"],
        body=row["body"],
        create_time=row["create_time"],
    )
