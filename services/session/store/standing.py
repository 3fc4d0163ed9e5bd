"""The standing_answers table."""

from __future__ import annotations

import asyncpg
from moorage.common.v1 import record_pb2

from services.common.database import Connection, Database
from services.common.validation import mint_id
from services.session.interactions import Interaction
from services.session.journal.rules import SessionKey
from services.session.requests import RequestKey
from services.session.standing import StandingAnswer, StandingAnswerNotFound, Subject, stands
from services.session.store.requests import claim_request
from services.session.store.rows import PAGE_BYTES, Page, snapshot, values_of
from services.session.store.sessions import read_session
from services.session.store.writing import Writer, require


async def find_standing(
    connection: Connection, key: SessionKey, asked: record_pb2.InteractionOpened
) -> StandingAnswer | None:
    """The standing answer to a question; under the session's lock it stays so."""
    subject = Subject.of(asked)
    if subject is None:
        return None
    row = await connection.fetchrow(
        """
        SELECT * FROM session.standing_answers
        WHERE project = $1 AND session_id = $2 AND tool_kind = $3 AND md5(title) = md5($4) AND title = $4
          AND revoke_time IS NULL
        """,
        *key,
        *subject,
    )
    return _standing_of(row) if row else None


async def keep_standing(connection: Connection, stored: Interaction, option_id: str) -> None:
    """Let an answer stand, if it is one that does; it replaces the one before about the same."""
    allow, subject = stands(stored.asked, option_id), Subject.of(stored.asked)
    if allow is None or subject is None:
        return
    await connection.execute(
        """
        INSERT INTO session.standing_answers
            (project, session_id, standing_answer_id, tool_kind, title, allow, interaction_id, seq)
        VALUES ($1, $2, $3, $4, $5, $6, $7, $8)
        ON CONFLICT (project, session_id, tool_kind, md5(title)) WHERE revoke_time IS NULL DO UPDATE SET
            allow = excluded.allow, interaction_id = excluded.interaction_id, seq = excluded.seq,
            create_time = excluded.create_time
        """,
        stored.project,
        stored.session_id,
        mint_id("standing"),
        *subject,
        allow,
        stored.interaction_id,
        stored.seq,
    )


class StandingStore:
    """Standing answers; each public method is one statement or one transaction."""

    def __init__(self, database: Database, writer: Writer) -> None:
        """The service's database, and how its sessions are changed."""
        self._database = database
        self._writer = writer

    async def list_oldest(self, key: SessionKey, after_seq: int, limit: int) -> Page[StandingAnswer]:
        """Those in force, oldest first, of questions asked after a seq. Raises SessionNotFound."""
        async with snapshot(self._database) as connection:
            await read_session(connection, *key)
            rows = await connection.fetch(
                """
                SELECT * FROM (
                    SELECT oldest.*, count(*) OVER () AS found,
                           sum(bytes) OVER (ORDER BY seq) - bytes AS bytes_before
                    FROM (
                        SELECT standing_answers.*, 512 + octet_length(title) AS bytes
                        FROM session.standing_answers
                        WHERE project = $1 AND session_id = $2 AND seq > $3 AND revoke_time IS NULL
                        ORDER BY seq
                        LIMIT $4 + 1
                    ) AS oldest
                ) AS page
                WHERE bytes_before < $5
                ORDER BY seq
                LIMIT $4
                """,
                *key,
                after_seq,
                limit,
                PAGE_BYTES,
            )
        found = [_standing_of(row) for row in rows]
        return Page(found, more=bool(rows) and rows[0]["found"] > len(found))

    async def revoke(self, key: SessionKey, standing_answer_id: str, request: RequestKey) -> StandingAnswer:
        """Take one back; one that was taken back stays as it is. SessionNotFound, StandingAnswerNotFound."""
        async with self._writer.open("revoke_standing_answer") as write:
            names = {"standing_answer_id": standing_answer_id}
            await claim_request(write.connection, request, names)
            require(await write.lock({key: []}), key)
            row = await write.connection.fetchrow(
                """
                UPDATE session.standing_answers SET revoke_time = coalesce(revoke_time, clock_timestamp())
                WHERE project = $1 AND session_id = $2 AND standing_answer_id = $3
                RETURNING *
                """,
                *key,
                standing_answer_id,
            )
            if row is None:
                raise StandingAnswerNotFound(session_id=key.session_id, standing_answer_id=standing_answer_id)
        return _standing_of(row)


def _standing_of(row: asyncpg.Record) -> StandingAnswer:
    return StandingAnswer(**values_of(row, StandingAnswer))
