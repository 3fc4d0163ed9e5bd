"""SQL of takeovers: which holders are overdue, and the mark that comes before the takeover (S6, T3).

The mark is decided under the session's lock, so that no turn is begun between the look at the
turn and the mark.
"""

from __future__ import annotations

from datetime import timedelta

import asyncpg

from services.common.database import Database
from services.session.journal.rules import SessionKey
from services.session.recovery.targets import Target
from services.session.store.sessions import lock_session


class TakeoverStore:
    """Each method is one statement or one transaction."""

    def __init__(self, database: Database) -> None:
        """The service's database."""
        self._database = database

    async def overdue_stops(self) -> list[Target]:
        """Begun turns whose Stop was not carried out in time."""
        async with self._database.connection() as connection:
            rows = await connection.fetch(
                """
                SELECT turn.project, turn.session_id, turn.turn_id, session.workspace_id
                FROM session.turns AS turn
                JOIN session.sessions AS session USING (project, session_id)
                WHERE turn.stop_deadline <= clock_timestamp()
                """
            )
        return [_target_of(row, row["turn_id"]) for row in rows]

    async def next_stop_deadline(self) -> float | None:
        """Seconds until the next Stop will be overdue, None when none will."""
        async with self._database.connection() as connection:
            seconds: float | None = await connection.fetchval(
                """
                SELECT extract(epoch FROM min(stop_deadline) - clock_timestamp())::float8
                FROM session.turns
                WHERE stop_deadline > clock_timestamp()
                """
            )
        return seconds

    async def waiting_turns(self, patience: float) -> list[Target]:
        """Turns that have been ADMITTED for `patience` seconds."""
        async with self._database.connection() as connection:
            rows = await connection.fetch(
                """
                SELECT turn.project, turn.session_id, turn.turn_id, session.workspace_id
                FROM session.turns AS turn
                JOIN session.sessions AS session USING (project, session_id)
                WHERE turn.state = 'ADMITTED' AND turn.admit_time + $1::interval <= clock_timestamp()
                """,
                timedelta(seconds=patience),
            )
        return [_target_of(row, row["turn_id"]) for row in rows]

    async def stuck_closings(self, patience: float) -> list[Target]:
        """Sessions that have been closing for `patience` seconds and have no turn in progress."""
        async with self._database.connection() as connection:
            rows = await connection.fetch(
                """
                SELECT project, session_id, workspace_id FROM session.sessions AS session
                WHERE operation IN ('CLOSE', 'DELETE') AND state <> 'DELETED'
                  AND operation_time + $1::interval <= clock_timestamp()
                  AND NOT EXISTS (
                      SELECT FROM session.turns AS turn
                      WHERE turn.project = session.project AND turn.session_id = session.session_id
                        AND turn.state IN ('ADMITTED', 'RUNNING', 'AWAITING_INPUT')
                  )
                """,
                timedelta(seconds=patience),
            )
        return [_target_of(row, "") for row in rows]

    async def mark_stop(self, key: SessionKey, turn_id: str) -> int | None:
        """The token to take over, which begins nothing more; None when the turn's Stop is not overdue now."""
        async with self._database.transaction() as connection:
            await lock_session(connection, *key)
            token: int | None = await connection.fetchval(
                """
                UPDATE session.sessions AS session
                SET begin_above = greatest(session.begin_above, turn.token)
                FROM session.turns AS turn
                WHERE session.project = $1 AND session.session_id = $2
                  AND turn.project = $1 AND turn.session_id = $2 AND turn.turn_id = $3
                  AND turn.state IN ('RUNNING', 'AWAITING_INPUT')
                  AND turn.stop_deadline <= clock_timestamp()
                RETURNING turn.token
                """,
                *key,
                turn_id,
            )
        return token

    async def mark_missing(self, key: SessionKey, turn_id: str, attempt_id: str) -> int | None:
        """The token to take over, which begins nothing more; None when that attempt does not drive the turn."""
        async with self._database.transaction() as connection:
            await lock_session(connection, *key)
            token: int | None = await connection.fetchval(
                """
                UPDATE session.sessions AS session
                SET begin_above = greatest(session.begin_above, turn.token)
                FROM session.turns AS turn
                WHERE session.project = $1 AND session.session_id = $2
                  AND turn.project = $1 AND turn.session_id = $2 AND turn.turn_id = $3
                  AND turn.state IN ('RUNNING', 'AWAITING_INPUT') AND turn.attempt_id = $4
                RETURNING turn.token
                """,
                *key,
                turn_id,
                attempt_id,
            )
        return token

    async def mark_waiting(self, key: SessionKey, turn_id: str, token: int) -> bool:
        """Let the token begin nothing more; False when the turn is not ADMITTED any more."""
        async with self._database.transaction() as connection:
            await lock_session(connection, *key)
            marked: bool | None = await connection.fetchval(
                """
                UPDATE session.sessions AS session
                SET begin_above = greatest(session.begin_above, $4)
                FROM session.turns AS turn
                WHERE session.project = $1 AND session.session_id = $2
                  AND turn.project = $1 AND turn.session_id = $2 AND turn.turn_id = $3
                  AND turn.state = 'ADMITTED'
                RETURNING true
                """,
                *key,
                turn_id,
                token,
            )
        return bool(marked)

    async def mark_closing(self, key: SessionKey, token: int) -> bool:
        """Let the token begin nothing more; False when the session is not closing, or a turn is in progress."""
        async with self._database.transaction() as connection:
            await lock_session(connection, *key)
            marked: bool | None = await connection.fetchval(
                """
                UPDATE session.sessions AS session
                SET begin_above = greatest(session.begin_above, $3)
                WHERE project = $1 AND session_id = $2 AND operation IN ('CLOSE', 'DELETE')
                  AND NOT EXISTS (
                      SELECT FROM session.turns AS turn
                      WHERE turn.project = $1 AND turn.session_id = $2
                        AND turn.state IN ('ADMITTED', 'RUNNING', 'AWAITING_INPUT')
                  )
                RETURNING true
                """,
                *key,
                token,
            )
        return bool(marked)

    async def dispatch_anew(self, key: SessionKey, turn_id: str) -> None:
        """Let an admitted turn be offered at once."""
        async with self._database.connection() as connection:
            await connection.execute(
                """
                UPDATE session.turns SET dispatch_time = clock_timestamp()
                WHERE project = $1 AND session_id = $2 AND turn_id = $3 AND state = 'ADMITTED'
                """,
                *key,
                turn_id,
            )


def _target_of(row: asyncpg.Record, turn_id: str) -> Target:
    key = SessionKey(row["project"], row["session_id"])
    return Target(key=key, workspace_id=row["workspace_id"], turn_id=turn_id)
