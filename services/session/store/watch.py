"""SQL of watching: how far sessions are, and hints to the other replicas."""

from __future__ import annotations

from collections.abc import Callable, Collection
from contextlib import AbstractAsyncContextManager
from typing import Final

from services.common.database import Database
from services.session.journal.rules import SessionKey

_CHANNEL: Final = "moorage_session_records"


class WatchStore:
    """Reads for watches."""

    def __init__(self, database: Database) -> None:
        """The service's database."""
        self._database = database

    async def heads(self, keys: Collection[SessionKey]) -> dict[SessionKey, int]:
        """The seq of the last record of each of these sessions that exists."""
        async with self._database.connection() as connection:
            rows = await connection.fetch(
                """
                SELECT project, session_id, head_seq FROM session.sessions
                JOIN unnest($1::text[], $2::text[]) AS watched (project, session_id)
                  USING (project, session_id)
                WHERE state <> 'DELETED'
                """,
                [key.project for key in keys],
                [key.session_id for key in keys],
            )
        return {SessionKey(row["project"], row["session_id"]): row["head_seq"] for row in rows}

    async def tell(self, hint: str) -> None:
        """Send a hint of at most 8,000 bytes to all replicas, this one too."""
        async with self._database.connection() as connection:
            await connection.execute("SELECT pg_notify($1, $2)", _CHANNEL, hint)

    def hear(self, callback: Callable[[str], None]) -> AbstractAsyncContextManager[None]:
        """While open, call back with each hint, and with an empty one when hints may have been missed."""
        return self._database.listen(_CHANNEL, callback)
