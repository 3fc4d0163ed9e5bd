"""SQL of the answer outbox: claiming decisions that runners do not know yet."""

from __future__ import annotations

from datetime import timedelta

import asyncpg

from services.common.database import Database
from services.session.interactions import AnswerClaim, InteractionState


class AnswerStore:
    """Each method is one statement.

    What it changes of a settled interaction concerns nobody but the outbox, and is guarded by
    `delivery_attempts`; thus it does without the session's lock.
    """

    def __init__(self, database: Database) -> None:
        """The service's database."""
        self._database = database

    async def hasten(self) -> None:
        """Let everything be due that is not delivered, and that nobody is changing."""
        async with self._database.connection() as connection:
            await connection.execute(
                """
                UPDATE session.interactions AS interaction SET delivery_time = clock_timestamp()
                FROM (
                    SELECT project, session_id, interaction_id FROM session.interactions
                    WHERE delivery_time > clock_timestamp()
                    FOR NO KEY UPDATE SKIP LOCKED
                ) AS later
                WHERE interaction.project = later.project AND interaction.session_id = later.session_id
                  AND interaction.interaction_id = later.interaction_id
                """
            )

    async def claim(self, limit: int, *, hold: float) -> list[AnswerClaim]:
        """Take decisions that are due; no other replica gets them for `hold` seconds."""
        async with self._database.connection() as connection:
            rows = await connection.fetch(
                """
                UPDATE session.interactions AS interaction SET
                    delivery_time = clock_timestamp() + $2::interval,
                    delivery_attempts = interaction.delivery_attempts + 1
                FROM (
                    SELECT project, session_id, interaction_id FROM session.interactions
                    WHERE delivery_time <= clock_timestamp()
                    ORDER BY delivery_time
                    LIMIT $1
                    FOR NO KEY UPDATE SKIP LOCKED
                ) AS due
                JOIN session.interactions AS stored USING (project, session_id, interaction_id)
                JOIN session.turns AS turn USING (project, session_id, turn_id)
                WHERE interaction.project = due.project AND interaction.session_id = due.session_id
                  AND interaction.interaction_id = due.interaction_id
                RETURNING interaction.project, interaction.session_id, interaction.turn_id,
                    interaction.interaction_id, interaction.state, interaction.option_id,
                    interaction.answer_values,
                    turn.traceparent, interaction.delivery_attempts
                """,
                limit,
                timedelta(seconds=hold),
            )
        return [_claim_of(row) for row in rows]

    async def delivered(self, claim: AnswerClaim) -> None:
        """The runner has it."""
        async with self._database.connection() as connection:
            await connection.execute(
                """
                UPDATE session.interactions SET delivery_time = NULL
                WHERE project = $1 AND session_id = $2 AND interaction_id = $3
                """,
                claim.project,
                claim.session_id,
                claim.interaction_id,
            )

    async def postpone(self, claim: AnswerClaim, seconds: float) -> None:
        """Let it be claimed again after so many seconds, unless it is not to be delivered any more."""
        async with self._database.connection() as connection:
            await connection.execute(
                """
                UPDATE session.interactions SET delivery_time = clock_timestamp() + $5::interval
                WHERE project = $1 AND session_id = $2 AND interaction_id = $3
                  AND delivery_attempts = $4 AND delivery_time IS NOT NULL
                """,
                claim.project,
                claim.session_id,
                claim.interaction_id,
                claim.attempts,
                timedelta(seconds=seconds),
            )

    async def next_due(self) -> float | None:
        """Seconds until the next decision is due, None when all are delivered."""
        async with self._database.connection() as connection:
            seconds: float | None = await connection.fetchval(
                """
                SELECT extract(epoch FROM min(delivery_time) - clock_timestamp())::float8
                FROM session.interactions
                WHERE delivery_time IS NOT NULL
                """
            )
        return seconds


def _claim_of(row: asyncpg.Record) -> AnswerClaim:
    return AnswerClaim(
        project=row["project"],
        session_id=row["session_id"],
        turn_id=row["turn_id"],
        interaction_id=row["interaction_id"],
        state=InteractionState(row["state"]),
        option_id=row["option_id"],
        values=row["answer_values"],
        traceparent=row["traceparent"],
        attempts=row["delivery_attempts"],
    )
