"""SQL of the outbox: claiming admitted turns, offering them, and what is in progress where."""

from __future__ import annotations

from datetime import timedelta

import asyncpg

from services.common.database import Database
from services.session.journal.rules import SessionKey
from services.session.outbox.offers import Claim, Loads
from services.session.recovery.targets import BegunTurn


class DispatchStore:
    """Each method is one statement.

    What it changes of an admitted turn concerns nobody but the outbox, and is guarded by the
    turn's state; thus it does without the session's lock.
    """

    def __init__(self, database: Database) -> None:
        """The service's database."""
        self._database = database

    async def claim(self, limit: int, *, hold: float, window: float) -> list[Claim]:
        """Take turns that are due; no other replica gets them for `hold` seconds."""
        async with self._database.connection() as connection:
            rows = await connection.fetch(
                """
                UPDATE session.turns AS turn SET
                    dispatch_time = clock_timestamp() + $2::interval,
                    dispatch_attempts = turn.dispatch_attempts + 1
                FROM (
                    SELECT project, session_id, turn_id FROM session.turns
                    WHERE state = 'ADMITTED' AND dispatch_time <= clock_timestamp()
                    ORDER BY dispatch_time
                    LIMIT $1
                    FOR NO KEY UPDATE SKIP LOCKED
                ) AS due
                JOIN session.sessions AS session USING (project, session_id)
                WHERE turn.project = due.project AND turn.session_id = due.session_id
                  AND turn.turn_id = due.turn_id
                RETURNING turn.project, turn.session_id, turn.turn_id, session.profile,
                    turn.traceparent, turn.dispatch_endpoint, turn.dispatch_attempts,
                    turn.admit_time + $3::interval <= clock_timestamp() AS overdue
                """,
                limit,
                timedelta(seconds=hold),
                timedelta(seconds=window),
            )
        return [_claim_of(row) for row in rows]

    async def offer(self, claim: Claim, endpoint: str) -> bool:
        """Count a turn towards a runner's load before it is offered; False when it is not to be any more."""
        async with self._database.connection() as connection:
            offered: bool | None = await connection.fetchval(
                """
                UPDATE session.turns SET dispatch_endpoint = $4
                WHERE project = $1 AND session_id = $2 AND turn_id = $3 AND state = 'ADMITTED'
                  AND dispatch_attempts = $5
                RETURNING true
                """,
                *claim.key,
                claim.turn_id,
                endpoint,
                claim.attempts,
            )
        return bool(offered)

    async def postpone(self, claim: Claim, seconds: float, waiting_reason: str, *, window: float) -> None:
        """Let the turn be claimed again after so many seconds, or when its window ends."""
        async with self._database.connection() as connection:
            await connection.execute(
                """
                UPDATE session.turns SET
                    dispatch_time = least(clock_timestamp() + $5::interval, admit_time + $6::interval),
                    waiting_reason = $7
                WHERE project = $1 AND session_id = $2 AND turn_id = $3 AND state = 'ADMITTED'
                  AND dispatch_attempts = $4
                """,
                *claim.key,
                claim.turn_id,
                claim.attempts,
                timedelta(seconds=seconds),
                timedelta(seconds=window),
                waiting_reason,
            )

    async def next_due(self) -> float | None:
        """Seconds until the next turn is due, None when none is admitted."""
        async with self._database.connection() as connection:
            seconds: float | None = await connection.fetchval(
                """
                SELECT extract(epoch FROM min(dispatch_time) - clock_timestamp())::float8
                FROM session.turns
                WHERE state = 'ADMITTED'
                """
            )
        return seconds

    async def loads(self, claim: Claim) -> Loads:
        """Turns in progress by runner, without the claimed one."""
        async with self._database.connection() as connection:
            rows = await connection.fetch(
                """
                SELECT state, coalesce(runner_id, dispatch_endpoint) AS runner, count(*) AS turns
                FROM session.turns
                WHERE state IN ('ADMITTED', 'RUNNING', 'AWAITING_INPUT')
                  AND (project, session_id, turn_id) <> ($1, $2, $3)
                GROUP BY 1, 2
                """,
                *claim.key,
                claim.turn_id,
            )
        return Loads(
            begun={row["runner"]: row["turns"] for row in rows if row["state"] != "ADMITTED"},
            offered={row["runner"]: row["turns"] for row in rows if row["state"] == "ADMITTED"},
        )

    async def begun_turns(self) -> list[BegunTurn]:
        """All turns that a holder drives, or drove when it was last heard of."""
        async with self._database.connection() as connection:
            rows = await connection.fetch(
                """
                SELECT turn.project, turn.session_id, turn.turn_id, turn.token, turn.attempt_id,
                    session.workspace_id
                FROM session.turns AS turn
                JOIN session.sessions AS session USING (project, session_id)
                WHERE turn.state IN ('RUNNING', 'AWAITING_INPUT')
                """
            )
        return [
            BegunTurn(
                key=SessionKey(row["project"], row["session_id"]),
                workspace_id=row["workspace_id"],
                turn_id=row["turn_id"],
                token=row["token"],
                attempt_id=row["attempt_id"],
            )
            for row in rows
        ]

    async def is_begun(self, turn: BegunTurn) -> bool:
        """Whether that attempt still drives the turn."""
        async with self._database.connection() as connection:
            begun: bool | None = await connection.fetchval(
                """
                SELECT true FROM session.turns
                WHERE project = $1 AND session_id = $2 AND turn_id = $3 AND attempt_id = $4
                  AND state IN ('RUNNING', 'AWAITING_INPUT')
                """,
                *turn.key,
                turn.turn_id,
                turn.attempt_id,
            )
        return bool(begun)


def _claim_of(row: asyncpg.Record) -> Claim:
    return Claim(
        key=SessionKey(row["project"], row["session_id"]),
        turn_id=row["turn_id"],
        profile=row["profile"],
        traceparent=row["traceparent"],
        endpoint=row["dispatch_endpoint"],
        attempts=row["dispatch_attempts"],
        overdue=row["overdue"],
    )
