"""SQL of the Stop outbox: claiming open commands, and what came of delivering them (S6)."""

from __future__ import annotations

from datetime import timedelta

from services.common.database import Database
from services.session.commands import StopClaim
from services.session.journal.rules import SessionKey


class DeliveryStore:
    """Each method is one statement.

    What it changes of an open command concerns nobody but the outbox, and is guarded by the
    command's state; thus it does without the session's lock.
    """

    def __init__(self, database: Database) -> None:
        """The service's database."""
        self._database = database

    async def claim(self, limit: int, *, hold: float) -> list[StopClaim]:
        """Take commands that are due; no other replica gets them for `hold` seconds."""
        async with self._database.connection() as connection:
            rows = await connection.fetch(
                """
                UPDATE session.commands AS command SET
                    delivery_time = clock_timestamp() + $2::interval, attempts = command.attempts + 1
                FROM (
                    SELECT project, session_id, command_id FROM session.commands
                    WHERE state IN ('PENDING', 'CLAIMED') AND delivery_time <= clock_timestamp()
                    ORDER BY delivery_time
                    LIMIT $1
                    FOR NO KEY UPDATE SKIP LOCKED
                ) AS due, session.turns AS turn
                WHERE command.project = due.project AND command.session_id = due.session_id
                  AND command.command_id = due.command_id
                  AND turn.project = command.project AND turn.session_id = command.session_id
                  AND turn.turn_id = command.turn_id
                RETURNING command.project, command.session_id, command.command_id, command.turn_id,
                    turn.attempt_id, command.traceparent, command.attempts
                """,
                limit,
                timedelta(seconds=hold),
            )
        return [
            StopClaim(
                key=SessionKey(row["project"], row["session_id"]),
                command_id=row["command_id"],
                turn_id=row["turn_id"],
                attempt_id=row["attempt_id"],
                traceparent=row["traceparent"],
                attempts=row["attempts"],
            )
            for row in rows
        ]

    async def count(self, claim: StopClaim) -> bool:
        """Count a delivery before it is sent; False when it is not to be any more."""
        async with self._database.connection() as connection:
            counted: bool | None = await connection.fetchval(
                """
                UPDATE session.commands SET deliveries = deliveries + 1
                WHERE project = $1 AND session_id = $2 AND command_id = $3 AND attempts = $4
                  AND state IN ('PENDING', 'CLAIMED')
                RETURNING true
                """,
                *claim.key,
                claim.command_id,
                claim.attempts,
            )
        return bool(counted)

    async def is_open(self, claim: StopClaim) -> bool:
        """Whether the turn has not ended yet."""
        async with self._database.connection() as connection:
            is_open: bool | None = await connection.fetchval(
                """
                SELECT true FROM session.commands
                WHERE project = $1 AND session_id = $2 AND command_id = $3 AND state IN ('PENDING', 'CLAIMED')
                """,
                *claim.key,
                claim.command_id,
            )
        return bool(is_open)

    async def postpone(self, claim: StopClaim, seconds: float, *, accepted: bool) -> None:
        """Let an open command be claimed again after so many seconds; CLAIMED once a runner has it."""
        async with self._database.connection() as connection:
            await connection.execute(
                """
                UPDATE session.commands SET
                    delivery_time = clock_timestamp() + $5::interval,
                    state = CASE WHEN $6::boolean THEN 'CLAIMED' ELSE state END
                WHERE project = $1 AND session_id = $2 AND command_id = $3 AND attempts = $4
                  AND state IN ('PENDING', 'CLAIMED')
                """,
                *claim.key,
                claim.command_id,
                claim.attempts,
                timedelta(seconds=seconds),
                accepted,
            )

    async def hasten(self) -> None:
        """Let all open commands be due that nobody is changing."""
        async with self._database.connection() as connection:
            await connection.execute(
                """
                UPDATE session.commands AS command SET delivery_time = clock_timestamp()
                FROM (
                    SELECT project, session_id, command_id FROM session.commands
                    WHERE state IN ('PENDING', 'CLAIMED') AND delivery_time > clock_timestamp()
                    FOR NO KEY UPDATE SKIP LOCKED
                ) AS later
                WHERE command.project = later.project AND command.session_id = later.session_id
                  AND command.command_id = later.command_id
                """
            )

    async def next_due(self) -> float | None:
        """Seconds until the next command is due, None when none is open."""
        async with self._database.connection() as connection:
            seconds: float | None = await connection.fetchval(
                """
                SELECT extract(epoch FROM min(delivery_time) - clock_timestamp())::float8
                FROM session.commands
                WHERE state IN ('PENDING', 'CLAIMED')
                """
            )
        return seconds
