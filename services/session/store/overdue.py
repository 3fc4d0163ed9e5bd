"""SQL that finds turns which exceed their bounds, by the database's clock."""

from __future__ import annotations

from datetime import timedelta
from typing import NamedTuple

from services.common.database import Database
from services.session.journal.rules import SessionKey


class ExceedingTurn(NamedTuple):
    """A begun turn that should have ended, and the trace of the request that started it."""

    key: SessionKey
    turn_id: str
    traceparent: str


class OverdueStore:
    """Each method is one statement. What they find is judged again under the session's lock."""

    def __init__(self, database: Database) -> None:
        """The service's database."""
        self._database = database

    async def exceeding(self, margin: timedelta) -> list[ExceedingTurn]:
        """Begun turns that nobody stops, and that exceeded a bound longer than `margin` ago."""
        async with self._database.connection() as connection:
            rows = await connection.fetch(
                """
                SELECT project, session_id, turn_id, traceparent FROM session.turns
                WHERE state IN ('RUNNING', 'AWAITING_INPUT') AND stop_deadline IS NULL
                  AND least(duration_deadline, phase_deadline) + $1::interval <= clock_timestamp()
                """,
                margin,
            )
        return [
            ExceedingTurn(SessionKey(row["project"], row["session_id"]), row["turn_id"], row["traceparent"])
            for row in rows
        ]

    async def next_due(self, margin: timedelta) -> float | None:
        """Seconds until the next turn would be one of them, None without a begun turn."""
        async with self._database.connection() as connection:
            seconds: float | None = await connection.fetchval(
                """
                SELECT extract(epoch FROM min(bound) + $1::interval - clock_timestamp())::float8
                FROM (
                    SELECT least(duration_deadline, phase_deadline) AS bound FROM session.turns
                    WHERE state IN ('RUNNING', 'AWAITING_INPUT') AND stop_deadline IS NULL
                ) AS begun
                WHERE bound + $1::interval > clock_timestamp()
                """,
                margin,
            )
        return seconds
