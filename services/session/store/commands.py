"""The commands table. An open command is settled by the end of its turn and by nothing else (S10)."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final

import asyncpg

from services.common.database import Connection, Database
from services.session.commands import (
    Command,
    CommandNotFound,
    CommandOutcome,
    CommandState,
    NothingToStop,
    StopDraft,
    outcome_of,
)
from services.session.journal.locked import StoredEnding
from services.session.journal.rules import SessionKey
from services.session.store.rows import Page, snapshot, values_of
from services.session.store.sessions import read_session

# For so long no turn is started under an id that was stopped before.
_WITHDRAWN: Final = timedelta(minutes=10)
_PURGE_BATCH: Final = 1000


class CommandStore:
    """Reading and forgetting commands; each method is one statement or one transaction."""

    def __init__(self, database: Database) -> None:
        """The service's database."""
        self._database = database

    async def get(self, key: SessionKey, command_id: str) -> Command:
        """A command as it stands. Raises SessionNotFound, CommandNotFound."""
        async with snapshot(self._database) as connection:
            await read_session(connection, *key)
            return await read_command(connection, key, command_id)

    async def list_newest(
        self, key: SessionKey, turn_id: str, after: tuple[datetime, str], limit: int
    ) -> Page[Command]:
        """The session's commands, newest first, that come after a (create_time, command_id).

        With `turn_id` only those about that turn. Raises SessionNotFound.
        """
        async with snapshot(self._database) as connection:
            await read_session(connection, *key)
            rows = await connection.fetch(
                """
                SELECT * FROM session.commands
                WHERE project = $1 AND session_id = $2 AND ($3 = '' OR turn_id = $3)
                  AND (create_time, command_id) < ($4, $5)
                ORDER BY create_time DESC, command_id DESC
                LIMIT $6 + 1
                """,
                *key,
                turn_id,
                *after,
                limit,
            )
        return Page([_command_of(row) for row in rows[:limit]], more=len(rows) > limit)

    async def purge(self, retention: timedelta) -> bool:
        """Forget some of the commands settled longer ago than `retention`; whether there may be more."""
        async with self._database.connection() as connection:
            status = await connection.execute(
                """
                DELETE FROM session.commands
                WHERE (project, session_id, command_id) IN (
                    SELECT project, session_id, command_id FROM session.commands
                    WHERE settle_time < clock_timestamp() - $1::interval
                    ORDER BY settle_time
                    LIMIT $2
                    FOR UPDATE SKIP LOCKED
                )
                """,
                retention,
                _PURGE_BATCH,
            )
        return status == f"DELETE {_PURGE_BATCH}"


async def read_command(connection: Connection, key: SessionKey, command_id: str) -> Command:
    """A command as it stands. Raises CommandNotFound."""
    row = await connection.fetchrow(
        "SELECT * FROM session.commands WHERE project = $1 AND session_id = $2 AND command_id = $3",
        *key,
        command_id,
    )
    if row is None:
        raise CommandNotFound(session_id=key.session_id, command_id=command_id)
    return _command_of(row)


async def open_command(connection: Connection, key: SessionKey, turn_id: str) -> Command:
    """The open command about a turn that is stopping; under the session's lock it stays open."""
    rows = await connection.fetch(
        """
        SELECT * FROM session.commands
        WHERE project = $1 AND session_id = $2 AND turn_id = $3 AND state IN ('PENDING', 'CLAIMED')
        """,
        *key,
        turn_id,
    )
    return _command_of(rows[0])


async def insert_open(
    connection: Connection, draft: StopDraft, turn_id: str, timeout: timedelta, hold: timedelta | None
) -> Command:
    """Store a Stop that waits for the end of its turn, with a deadline from now, and mark the turn as stopping.

    With `hold` it is claimed for so long, as the first attempt of whoever stores it.
    """
    rows = await connection.fetch(
        """
        WITH command AS (
            INSERT INTO session.commands (project, session_id, command_id, turn_id, kind, state, traceparent,
                deadline, delivery_time, attempts)
            VALUES ($1, $2, $3, $4, 'STOP', 'PENDING', $5, clock_timestamp() + $6::interval,
                clock_timestamp() + coalesce($7, interval '0'), ($7::interval IS NOT NULL)::int)
            RETURNING *
        ), stopping AS (
            UPDATE session.turns AS turn SET stop_deadline = command.deadline, stop_end_reason = $8
            FROM command
            WHERE turn.project = $1 AND turn.session_id = $2 AND turn.turn_id = $4 AND turn.end_time IS NULL
        )
        SELECT * FROM command
        """,
        *draft.key,
        draft.command_id,
        turn_id,
        draft.traceparent,
        timeout,
        hold,
        draft.end_reason,
    )
    return _command_of(rows[0])


async def insert_settled(connection: Connection, draft: StopDraft, nothing: NothingToStop) -> Command:
    """Store a Stop that ends no turn."""
    rows = await connection.fetch(
        """
        INSERT INTO session.commands (project, session_id, command_id, turn_id, kind, state, outcome,
            traceparent, settle_time)
        VALUES ($1, $2, $3, $4, 'STOP', $5, $6, $7, clock_timestamp())
        RETURNING *
        """,
        *draft.key,
        draft.command_id,
        nothing.turn_id,
        nothing.outcome.state,
        nothing.outcome,
        draft.traceparent,
    )
    return _command_of(rows[0])


async def settle_command(connection: Connection, key: SessionKey, stored: StoredEnding) -> None:
    """Settle the open command about a turn that ends in this transaction, if there is one."""
    ending, outcome = stored.ending, outcome_of(stored.ending)
    await connection.execute(
        """
        UPDATE session.commands SET
            state = $4, outcome = $5, stop_method = $6, runtime_after = $7, settle_time = clock_timestamp()
        WHERE project = $1 AND session_id = $2 AND turn_id = $3 AND state IN ('PENDING', 'CLAIMED')
        """,
        *key,
        stored.turn_id,
        outcome.state,
        outcome,
        ending.stop_method,
        ending.runtime_after,
    )


async def is_withdrawn(connection: Connection, key: SessionKey, turn_id: str) -> bool:
    """Whether a Stop came shortly before the turn that it names."""
    withdrawn: bool = await connection.fetchval(
        """
        SELECT EXISTS (
            SELECT FROM session.commands
            WHERE project = $1 AND session_id = $2 AND turn_id = $3 AND outcome = 'WITHDRAWN'
              AND settle_time > clock_timestamp() - $4::interval
        )
        """,
        *key,
        turn_id,
        _WITHDRAWN,
    )
    return withdrawn


def _command_of(row: asyncpg.Record) -> Command:
    values = values_of(row, Command)
    values["state"] = CommandState(row["state"])
    values["outcome"] = row["outcome"] and CommandOutcome(row["outcome"])
    return Command(**values)
