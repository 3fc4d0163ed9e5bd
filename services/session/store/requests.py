"""The request_ids table (S2)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import timedelta
from typing import Final

from services.common.database import Connection, Database
from services.session.requests import RequestKey, check_same

_PURGE_BATCH: Final = 1000


async def claim_request(
    connection: Connection, key: RequestKey, names: Mapping[str, str]
) -> Mapping[str, str] | None:
    """Store the key with the names of what this transaction makes; must be its first statement.

    Returns the names that an earlier call with this key made, None when there was none. A call
    under way with the same key is waited for. Raises RequestIdReused.
    """
    if not key.request_id:
        return None
    while True:
        claimed = await connection.fetchval(
            """
            INSERT INTO session.request_ids (project, scope, rpc, request_id, fingerprint, names)
            VALUES ($1, $2, $3, $4, $5, $6)
            ON CONFLICT DO NOTHING
            RETURNING true
            """,
            key.project,
            key.scope,
            key.rpc,
            key.request_id,
            key.fingerprint,
            json.dumps(dict(names)),
        )
        if claimed:
            return None
        # None when the purge removed it in between: then it is free.
        if (found := await find_request(connection, key)) is not None:
            return found


async def rename_request(connection: Connection, key: RequestKey, names: Mapping[str, str]) -> None:
    """Store other names with a key claimed in this transaction: what the call found instead of making it."""
    await connection.execute(
        """
        UPDATE session.request_ids SET names = $5
        WHERE project = $1 AND scope = $2 AND rpc = $3 AND request_id = $4
        """,
        key.project,
        key.scope,
        key.rpc,
        key.request_id,
        json.dumps(dict(names)),
    )


async def find_request(connection: Connection, key: RequestKey) -> Mapping[str, str] | None:
    """The names that an earlier call with this key made, if it is remembered. RequestIdReused."""
    if not key.request_id:
        return None
    row = await connection.fetchrow(
        """
        SELECT fingerprint, names FROM session.request_ids
        WHERE project = $1 AND scope = $2 AND rpc = $3 AND request_id = $4
        """,
        key.project,
        key.scope,
        key.rpc,
        key.request_id,
    )
    if row is None:
        return None
    check_same(key, row["fingerprint"])
    names: dict[str, str] = json.loads(row["names"])
    return names


class RequestStore:
    """Ageing of request ids."""

    def __init__(self, database: Database) -> None:
        """The service's database."""
        self._database = database

    async def purge(self, retention: timedelta) -> bool:
        """Forget some of the ids older than `retention`; whether there may be more."""
        async with self._database.connection() as connection:
            status = await connection.execute(
                """
                DELETE FROM session.request_ids
                WHERE (project, scope, rpc, request_id) IN (
                    SELECT project, scope, rpc, request_id FROM session.request_ids
                    WHERE create_time < clock_timestamp() - $1::interval
                    ORDER BY create_time
                    LIMIT $2
                    FOR UPDATE SKIP LOCKED
                )
                """,
                retention,
                _PURGE_BATCH,
            )
        return status == f"DELETE {_PURGE_BATCH}"
