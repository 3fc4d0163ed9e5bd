"""SQL of deleting: the wish, the moment from which nobody sees a session, and the removal of its rows.

What stays is a tombstone, the session's own row: its id and its highest token, for ever.
"""

from __future__ import annotations

from typing import Final

from services.common.database import Connection, Database
from services.session.close.closing import CloseClaim
from services.session.journal.rules import SessionKey
from services.session.requests import RequestKey
from services.session.store.requests import claim_request
from services.session.store.writing import Writer, require
from services.session.turns import EndReason

# Rows of one transaction, so that a long transcript holds no lock for long.
BATCH: Final = 500


class DeleteStore:
    """Each method is one statement or one transaction."""

    def __init__(self, database: Database, writer: Writer) -> None:
        """The service's database, and how its sessions are changed."""
        self._database = database
        self._writer = writer

    async def delete(self, session: SessionKey, traceparent: str, key: RequestKey) -> None:
        """Let a session be deleted from now on; it takes no more turns, and its queue ends.

        A close under way goes over into it. Raises SessionNotFound, RequestIdReused.
        """
        async with self._writer.open("delete_session") as write:
            if await claim_request(write.connection, key, {"session_id": session.session_id}) is not None:
                return
            journal = require(await write.lock({session: []}), session)
            journal.clear_queue(EndReason.CLOSED)
            await write.connection.execute(
                """
                UPDATE session.sessions SET
                    state = CASE WHEN state = 'OPEN' THEN 'CLOSING' ELSE state END,
                    operation = 'DELETE', operation_deadline = clock_timestamp(),
                    operation_time = clock_timestamp(),
                    operation_waiting_reason = '', operation_attempts = 0, operation_traceparent = $3
                WHERE project = $1 AND session_id = $2 AND (operation IS NULL OR operation = 'CLOSE')
                """,
                *session,
                traceparent,
            )

    async def bury(self, claim: CloseClaim) -> bool:
        """To DELETED: from now on nobody sees it; whether this call did it."""
        async with self._database.connection() as connection:
            buried: bool | None = await connection.fetchval(
                """
                UPDATE session.sessions AS session SET
                    state = 'DELETED', labels = '{}', agent = '', profile = '', limits = '',
                    binding_kind = '', binding = '', workspace_id = '',
                    retention = 'MANUAL', retention_ttl = NULL,
                    operation_deadline = clock_timestamp(), operation_waiting_reason = '',
                    operation_attempts = 0, update_time = clock_timestamp()
                WHERE project = $1 AND session_id = $2 AND operation = 'DELETE' AND state <> 'DELETED'
                  AND NOT EXISTS (
                      SELECT FROM session.turns AS turn
                      WHERE turn.project = $1 AND turn.session_id = $2
                        AND turn.state IN ('QUEUED', 'ADMITTED', 'RUNNING', 'AWAITING_INPUT')
                  )
                RETURNING true
                """,
                *claim.key,
            )
        return bool(buried)

    async def erase(self, key: SessionKey, limit: int = BATCH) -> bool:
        """Remove at most so many rows of a deleted session; whether there may be more.

        Records go from the end, and `head_seq` with them, so that none is looked for twice.
        """
        async with self._database.transaction() as connection:
            left = await connection.fetchval(
                """
                SELECT head_seq FROM session.sessions
                WHERE project = $1 AND session_id = $2 AND state = 'DELETED' AND operation = 'DELETE'
                FOR NO KEY UPDATE
                """,
                *key,
            )
            if left is None:
                return False
            if left > 0:
                await connection.execute(
                    """
                    WITH erased AS (
                        DELETE FROM session.records WHERE project = $1 AND session_id = $2 AND seq > $3
                    )
                    UPDATE session.sessions SET head_seq = $3 WHERE project = $1 AND session_id = $2
                    """,
                    *key,
                    max(left - limit, 0),
                )
                return True
            if await _erase_others(connection, key, limit):
                return True
            await connection.execute(
                """
                UPDATE session.sessions SET
                    operation = NULL, operation_deadline = NULL, operation_time = NULL,
                    operation_waiting_reason = '', operation_attempts = 0, operation_traceparent = ''
                WHERE project = $1 AND session_id = $2
                """,
                *key,
            )
        return False

    async def is_erased(self, key: SessionKey) -> bool:
        """Whether nothing of the session is left but its tombstone."""
        async with self._database.connection() as connection:
            erased: bool | None = await connection.fetchval(
                """
                SELECT true FROM session.sessions
                WHERE project = $1 AND session_id = $2 AND state = 'DELETED' AND operation IS NULL
                """,
                *key,
            )
        return bool(erased)


async def _erase_others(connection: Connection, key: SessionKey, limit: int) -> bool:
    """Remove some rows of one other table, in the order of their references; whether there were any."""
    for statement in (
        """
        DELETE FROM session.standing_answers
        WHERE project = $1 AND session_id = $2 AND standing_answer_id IN (
            SELECT standing_answer_id FROM session.standing_answers
            WHERE project = $1 AND session_id = $2 LIMIT $3
        )
        """,
        """
        DELETE FROM session.interactions
        WHERE project = $1 AND session_id = $2 AND interaction_id IN (
            SELECT interaction_id FROM session.interactions
            WHERE project = $1 AND session_id = $2 LIMIT $3
        )
        """,
        """
        DELETE FROM session.commands
        WHERE project = $1 AND session_id = $2 AND command_id IN (
            SELECT command_id FROM session.commands
            WHERE project = $1 AND session_id = $2 LIMIT $3
        )
        """,
        """
        DELETE FROM session.turns
        WHERE project = $1 AND session_id = $2 AND turn_id IN (
            SELECT turn_id FROM session.turns
            WHERE project = $1 AND session_id = $2 LIMIT $3
        )
        """,
        """
        -- that of the deletion itself is kept as long as any, for those who repeat it
        DELETE FROM session.request_ids
        WHERE project = $1 AND scope = $2 AND (rpc, request_id) IN (
            SELECT rpc, request_id FROM session.request_ids
            WHERE project = $1 AND scope = $2 AND rpc <> 'DeleteSession' LIMIT $3
        )
        """,
    ):
        if await connection.execute(statement, *key, limit) != "DELETE 0":
            return True
    return False
