"""The turns table: reading."""

from __future__ import annotations

from collections.abc import Sequence

import asyncpg

from services.common.database import Connection, Database
from services.session.journal.rules import SessionKey
from services.session.store.queue import placed
from services.session.store.rows import PAGE_BYTES, Page, snapshot, values_of
from services.session.store.sessions import read_session
from services.session.turns import EndReason, Turn, TurnNotFound, TurnPhase, TurnState


class TurnStore:
    """Reads of turns; what a method tells was so at one moment."""

    def __init__(self, database: Database) -> None:
        """The service's database."""
        self._database = database

    async def get(self, project: str, session_id: str, turn_id: str) -> Turn:
        """A turn as it stands. Raises SessionNotFound, TurnNotFound."""
        async with self._database.connection() as connection:
            row = await connection.fetchrow(
                """
                SELECT turn.* FROM session.turns AS turn
                JOIN session.sessions AS session USING (project, session_id)
                WHERE turn.project = $1 AND turn.session_id = $2 AND turn.turn_id = $3
                  AND turn.state <> 'QUEUED' AND session.state <> 'DELETED'
                """,
                project,
                session_id,
                turn_id,
            )
        if row is not None:
            return turn_of(row)
        async with snapshot(self._database) as connection:
            await read_session(connection, project, session_id)
            turn = await read_turn(connection, project, session_id, turn_id)
            return (await placed(connection, SessionKey(project, session_id), [turn]))[0]

    async def list_newest(self, project: str, session_id: str, before: int, limit: int) -> Page[Turn]:
        """The turns below a number, newest first. Raises SessionNotFound."""
        async with snapshot(self._database) as connection:
            await read_session(connection, project, session_id)
            rows = await connection.fetch(
                """
                SELECT * FROM (
                    SELECT newest.*, count(*) OVER () AS found,
                           sum(bytes) OVER (ORDER BY number DESC) - bytes AS bytes_before
                    FROM (
                        SELECT turns.*, 1024 + octet_length(prompt) AS bytes FROM session.turns
                        WHERE project = $1 AND session_id = $2 AND number < $3
                        ORDER BY number DESC
                        LIMIT $4 + 1
                    ) AS newest
                ) AS page
                WHERE bytes_before < $5
                ORDER BY number DESC
                LIMIT $4
                """,
                project,
                session_id,
                before,
                limit,
                PAGE_BYTES,
            )
            turns = [turn_of(row) for row in rows]
            turns = await placed(connection, SessionKey(project, session_id), turns)
        return Page(turns, more=bool(rows) and rows[0]["found"] > len(turns))


async def read_turn(connection: Connection, project: str, session_id: str, turn_id: str) -> Turn:
    """A turn as it stands; under the session's lock it stays so. Raises TurnNotFound."""
    if turn := await find_turn(connection, project, session_id, turn_id):
        return turn
    raise TurnNotFound(session_id=session_id, turn_id=turn_id)


async def find_turn(connection: Connection, project: str, session_id: str, turn_id: str) -> Turn | None:
    """A turn as it stands, None without one."""
    row = await connection.fetchrow(
        "SELECT * FROM session.turns WHERE project = $1 AND session_id = $2 AND turn_id = $3",
        project,
        session_id,
        turn_id,
    )
    return None if row is None else turn_of(row)


async def turn_in_progress(connection: Connection, project: str, session_id: str) -> Turn | None:
    """The turn that has the session's slot."""
    return (await turns_in_progress(connection, project, [session_id])).get(session_id)


async def turns_in_progress(
    connection: Connection, project: str, session_ids: Sequence[str]
) -> dict[str, Turn]:
    """The turns that have the slots of these sessions, by session."""
    rows = await connection.fetch(
        """
        SELECT * FROM session.turns
        WHERE project = $1 AND session_id = ANY($2::text[])
          AND state IN ('ADMITTED', 'RUNNING', 'AWAITING_INPUT')
        """,
        project,
        session_ids,
    )
    return {row["session_id"]: turn_of(row) for row in rows}


def turn_of(row: asyncpg.Record) -> Turn:
    """A whole row of session.turns."""
    values = values_of(row, Turn)
    values["state"] = TurnState(row["state"])
    values["end_reason"] = row["end_reason"] and EndReason(row["end_reason"])
    values["phase"] = row["phase"] and TurnPhase(row["phase"])
    return Turn(**values)
