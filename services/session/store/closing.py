"""SQL of closing: the wish, the operation that replicas take up (deleting too), and its end."""

from __future__ import annotations

from datetime import timedelta

from services.common.database import Database
from services.session.close.closing import CloseClaim
from services.session.journal.rules import SessionKey
from services.session.requests import RequestKey
from services.session.sessions import OperationKind, RetentionPolicy
from services.session.store.requests import claim_request
from services.session.store.writing import Writer, require
from services.session.turns import EndReason


class CloseStore:
    """Each method is one statement or one transaction.

    What it changes of an operation under way concerns nobody but those who carry it out, and is
    guarded by the number of their attempts.
    """

    def __init__(self, database: Database, writer: Writer) -> None:
        """The service's database, and how its sessions are changed."""
        self._database = database
        self._writer = writer

    async def close(self, session: SessionKey, traceparent: str, key: RequestKey) -> None:
        """Let an open session take no more turns, and be closed from now on; a closed one stays so.

        What waits in its queue ends. Raises SessionNotFound, RequestIdReused.
        """
        async with self._writer.open("close_session") as write:
            if await claim_request(write.connection, key, {"session_id": session.session_id}) is not None:
                return
            journal = require(await write.lock({session: []}), session)
            journal.clear_queue(EndReason.CLOSED)
            await write.connection.execute(
                """
                UPDATE session.sessions SET
                    state = 'CLOSING', operation = 'CLOSE', operation_deadline = clock_timestamp(),
                    operation_time = clock_timestamp(),
                    operation_waiting_reason = '', operation_attempts = 0, operation_traceparent = $3
                WHERE project = $1 AND session_id = $2 AND state = 'OPEN'
                """,
                *session,
                traceparent,
            )

    async def claim(self, limit: int, *, hold: float) -> list[CloseClaim]:
        """Take operations that are due; no other replica gets them for `hold` seconds."""
        async with self._database.connection() as connection:
            rows = await connection.fetch(
                """
                UPDATE session.sessions AS session SET
                    operation_deadline = clock_timestamp() + $2::interval,
                    operation_attempts = session.operation_attempts + 1
                FROM (
                    SELECT project, session_id FROM session.sessions
                    WHERE operation IN ('CLOSE', 'DELETE') AND operation_deadline <= clock_timestamp()
                    ORDER BY operation_deadline
                    LIMIT $1
                    FOR NO KEY UPDATE SKIP LOCKED
                ) AS due
                WHERE session.project = due.project AND session.session_id = due.session_id
                RETURNING session.project, session.session_id, session.workspace_id, session.retention,
                    session.retention_ttl, session.operation_traceparent, session.operation_attempts,
                    session.operation, session.state = 'DELETED' AS gone
                """,
                limit,
                timedelta(seconds=hold),
            )
        return [
            CloseClaim(
                key=SessionKey(row["project"], row["session_id"]),
                workspace_id=row["workspace_id"],
                retention=RetentionPolicy(row["retention"]),
                retention_ttl=row["retention_ttl"],
                traceparent=row["operation_traceparent"],
                attempts=row["operation_attempts"],
                operation=OperationKind(row["operation"]),
                gone=row["gone"],
            )
            for row in rows
        ]

    async def postpone(self, claim: CloseClaim, seconds: float, waiting_reason: str | None) -> None:
        """Let it be taken up again after so many seconds; None leaves the reason as it is."""
        async with self._database.connection() as connection:
            await connection.execute(
                """
                UPDATE session.sessions SET
                    operation_deadline = clock_timestamp() + $4::interval,
                    operation_waiting_reason = coalesce($5, operation_waiting_reason)
                WHERE project = $1 AND session_id = $2 AND operation = $6 AND operation_attempts = $3
                """,
                *claim.key,
                claim.attempts,
                timedelta(seconds=seconds),
                waiting_reason,
                claim.operation,
            )

    async def finish(self, claim: CloseClaim) -> bool:
        """CLOSING to CLOSED; whether this call did it. False when it is to be deleted meanwhile."""
        async with self._database.connection() as connection:
            closed: bool | None = await connection.fetchval(
                """
                UPDATE session.sessions SET
                    state = 'CLOSED', operation = NULL, operation_deadline = NULL, operation_time = NULL,
                    operation_waiting_reason = '', operation_attempts = 0, operation_traceparent = ''
                WHERE project = $1 AND session_id = $2 AND state = 'CLOSING' AND operation = 'CLOSE'
                RETURNING true
                """,
                *claim.key,
            )
        return bool(closed)

    async def hasten(self) -> None:
        """Let all operations be due."""
        async with self._database.connection() as connection:
            await connection.execute(
                """
                UPDATE session.sessions SET operation_deadline = clock_timestamp()
                WHERE operation IS NOT NULL AND operation_deadline > clock_timestamp()
                """
            )

    async def next_due(self) -> float | None:
        """Seconds until the next operation is due, None when there is none."""
        async with self._database.connection() as connection:
            seconds: float | None = await connection.fetchval(
                """
                SELECT extract(epoch FROM min(operation_deadline) - clock_timestamp())::float8
                FROM session.sessions
                WHERE operation IS NOT NULL
                """
            )
        return seconds
