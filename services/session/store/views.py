"""Sessions and commands together with their turns, as of one moment."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime

from services.common.database import Database
from services.session.commands import Command
from services.session.journal.rules import SessionKey
from services.session.sessions import SessionView
from services.session.store.commands import read_command
from services.session.store.queue import read_queue
from services.session.store.rows import PAGE_BYTES, Page, snapshot
from services.session.store.sessions import read_session, session_of
from services.session.store.turns import find_turn, turn_in_progress, turns_in_progress
from services.session.turns import Turn


class ViewStore:
    """Reads for GetSession, ListSessions and StopTurn."""

    def __init__(self, database: Database) -> None:
        """The service's database."""
        self._database = database

    async def get(self, project: str, session_id: str) -> SessionView:
        """One session. Raises SessionNotFound."""
        async with snapshot(self._database) as connection:
            session = await read_session(connection, project, session_id)
            turn = await turn_in_progress(connection, project, session_id)
            return SessionView(session, turn, await read_queue(connection, SessionKey(project, session_id)))

    async def get_command(self, key: SessionKey, command_id: str) -> tuple[Command, Turn | None]:
        """A command and the turn that it is about, if there is one. Raises SessionNotFound, CommandNotFound."""
        async with snapshot(self._database) as connection:
            await read_session(connection, *key)
            command = await read_command(connection, key, command_id)
            named = command.turn_id
            return command, await find_turn(connection, *key, named) if named else None

    async def list_newest(
        self, project: str, labels: Mapping[str, str], after: tuple[datetime, str], limit: int
    ) -> Page[SessionView]:
        """Sessions with all of the labels, newest first, that come after a (create_time, session_id)."""
        async with snapshot(self._database) as connection:
            rows = await connection.fetch(
                """
                SELECT * FROM (
                    SELECT newest.*, count(*) OVER () AS found,
                           sum(bytes) OVER (ORDER BY create_time DESC, session_id DESC) - bytes
                               AS bytes_before
                    FROM (
                        SELECT session.*,
                               1024 + octet_length(session.labels::text) + octet_length(session.agent)
                                   + coalesce(octet_length(turn.prompt), 0) AS bytes
                        FROM session.sessions AS session
                        LEFT JOIN session.turns AS turn
                            ON turn.project = session.project AND turn.session_id = session.session_id
                            AND turn.state IN ('ADMITTED', 'RUNNING', 'AWAITING_INPUT')
                        WHERE session.project = $1 AND session.state <> 'DELETED'
                          AND session.labels @> $2::jsonb
                          AND (session.create_time, session.session_id) < ($3, $4)
                        ORDER BY session.create_time DESC, session.session_id DESC
                        LIMIT $5 + 1
                    ) AS newest
                ) AS page
                WHERE bytes_before < $6
                ORDER BY create_time DESC, session_id DESC
                LIMIT $5
                """,
                project,
                json.dumps(dict(labels)),
                *after,
                limit,
                PAGE_BYTES,
            )
            sessions = [session_of(row) for row in rows]
            turns = await turns_in_progress(connection, project, [each.session_id for each in sessions])
        views = [SessionView(session, turns.get(session.session_id)) for session in sessions]
        return Page(views, more=bool(rows) and rows[0]["found"] > len(views))
