"""The interactions table: reading, answering and expiring (first decision wins)."""

from __future__ import annotations

from services.common.database import Connection, Database
from services.session.interactions import (
    CLIENT,
    EXPIRY,
    Answer,
    Interaction,
    InteractionState,
    Settlement,
    check_answer,
)
from services.session.journal.rules import SessionJournal, SessionKey
from services.session.requests import RequestKey
from services.session.store.questions import interaction_of, overdue, read_interaction
from services.session.store.requests import claim_request
from services.session.store.rows import PAGE_BYTES, Page, snapshot
from services.session.store.sessions import read_session
from services.session.store.standing import keep_standing
from services.session.store.writing import Writer, require


class InteractionStore:
    """Interactions; each public method is one statement or one transaction, unless it says more."""

    def __init__(self, database: Database, writer: Writer) -> None:
        """The service's database, and how its sessions are changed."""
        self._database = database
        self._writer = writer

    async def get(self, key: SessionKey, interaction_id: str) -> Interaction:
        """An interaction as it stands. Raises SessionNotFound, InteractionNotFound."""
        async with snapshot(self._database) as connection:
            await read_session(connection, *key)
            return await read_interaction(connection, key, interaction_id)

    async def list_oldest(
        self, key: SessionKey, after_seq: int, limit: int, *, pending_only: bool
    ) -> Page[Interaction]:
        """The interactions asked after a seq, oldest first. Raises SessionNotFound."""
        async with snapshot(self._database) as connection:
            await read_session(connection, *key)
            rows = await connection.fetch(
                """
                SELECT * FROM (
                    SELECT oldest.*, count(*) OVER () AS found,
                           sum(bytes) OVER (ORDER BY seq) - bytes AS bytes_before
                    FROM (
                        SELECT interactions.*, 1024 + octet_length(question) AS bytes
                        FROM session.interactions
                        WHERE project = $1 AND session_id = $2 AND seq > $3
                          AND (state = 'PENDING' OR NOT $4::boolean)
                        ORDER BY seq
                        LIMIT $5 + 1
                    ) AS oldest
                ) AS page
                WHERE bytes_before < $6
                ORDER BY seq
                LIMIT $5
                """,
                *key,
                after_seq,
                pending_only,
                limit,
                PAGE_BYTES,
            )
        found = [interaction_of(row) for row in rows]
        return Page(found, more=bool(rows) and rows[0]["found"] > len(found))

    async def answer(self, answer: Answer, request: RequestKey) -> Interaction:
        """Decide a question that waits; what is stored, also when an earlier call with this key did it.

        One that ran out of time is expired first, in a transaction of its own. Refused, it stores
        nothing else: SessionNotFound, InteractionNotFound, InteractionNotPending, InvalidArgument,
        RequestIdReused.
        """
        key = SessionKey(answer.project, answer.session_id)
        while not await self._answer(key, answer, request):
            await self.expire(key)
        return await self.get(key, answer.interaction_id)

    async def expire(self, key: SessionKey) -> None:
        """Let the session's questions expire that nobody answered in time."""
        async with self._writer.open("expire_interactions") as write:
            journal = require(await write.lock({key: []}), key)
            for late in await overdue(write.connection, key):
                settlement = Settlement(late.interaction_id, InteractionState.EXPIRED, EXPIRY)
                journal.settle(journal.turn(late.turn_id), settlement)

    async def overdue_sessions(self, limit: int) -> list[SessionKey]:
        """Sessions with questions that nobody answered in time, the longest overdue first."""
        async with self._database.connection() as connection:
            rows = await connection.fetch(
                """
                SELECT project, session_id FROM session.interactions
                WHERE state = 'PENDING' AND expire_time <= clock_timestamp()
                GROUP BY project, session_id
                ORDER BY min(expire_time)
                LIMIT $1
                """,
                limit,
            )
        return [SessionKey(row["project"], row["session_id"]) for row in rows]

    async def next_expiry(self) -> float | None:
        """Seconds until the next question expires, None when none waits."""
        async with self._database.connection() as connection:
            seconds: float | None = await connection.fetchval(
                """
                SELECT extract(epoch FROM min(expire_time) - clock_timestamp())::float8
                FROM session.interactions
                WHERE state = 'PENDING'
                """
            )
        return seconds

    async def _answer(self, key: SessionKey, answer: Answer, request: RequestKey) -> bool:
        """False when nothing was stored, since the question's time is up."""
        try:
            async with self._writer.open("answer_interaction") as write:
                names = {"interaction_id": answer.interaction_id}
                if await claim_request(write.connection, request, names) is None:
                    journal = require(await write.lock({key: []}), key)
                    await _decide(write.connection, journal, answer)
        except _OutOfTime:
            return False
        return True


class _OutOfTime(Exception):
    """The question waits, but should have expired."""


async def _decide(connection: Connection, journal: SessionJournal, answer: Answer) -> None:
    stored = await read_interaction(connection, journal.key, answer.interaction_id)
    values = check_answer(stored, answer)
    if stored in await overdue(connection, journal.key):
        raise _OutOfTime
    settlement = Settlement(
        stored.interaction_id, InteractionState.ANSWERED, CLIENT, answer.option_id, values
    )
    journal.settle(journal.turn(stored.turn_id), settlement)
    await keep_standing(connection, stored, answer.option_id)
