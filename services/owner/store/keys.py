"""The keys that sign grants."""

from __future__ import annotations

from datetime import timedelta

from services.common.database import Connection, Database
from services.owner.keys import NewKey, StoredKey
from services.owner.store.durability import commit_durably


class KeyStore:
    """The table `owner.grant_keys`."""

    def __init__(self, database: Database) -> None:
        """The database must be open when a method is called."""
        self._database = database

    async def keys(self) -> list[StoredKey]:
        """All keys that verify, newest first."""
        async with self._database.connection() as connection:
            return await _keys(connection)

    async def agree_on_keys(
        self, candidate: NewKey, lifetime: timedelta, overlap: timedelta
    ) -> list[StoredKey]:
        """All keys, newest first, with `candidate` among them if no key is younger than `lifetime`.

        Keys that were replaced longer than `overlap` ago are dropped. Replicas that do this
        at the same time get the same keys.
        """
        async with self._database.transaction() as connection:
            await commit_durably(connection)
            await connection.execute("LOCK TABLE owner.grant_keys IN SHARE ROW EXCLUSIVE MODE")
            await connection.execute(
                """
                INSERT INTO owner.grant_keys (kid, private_key)
                SELECT $1, $2 WHERE NOT EXISTS (
                    SELECT FROM owner.grant_keys WHERE created_at > clock_timestamp() - $3::interval
                )
                """,
                candidate.kid,
                candidate.private_key,
                lifetime,
            )
            await connection.execute(
                """
                DELETE FROM owner.grant_keys AS old USING owner.grant_keys AS newer
                WHERE newer.created_at > old.created_at
                  AND newer.created_at < clock_timestamp() - $1::interval
                """,
                overlap,
            )
            return await _keys(connection)


async def _keys(connection: Connection) -> list[StoredKey]:
    rows = await connection.fetch(
        "SELECT kid, private_key, created_at FROM owner.grant_keys ORDER BY created_at DESC, kid"
    )
    return [StoredKey(row["kid"], row["private_key"], row["created_at"]) for row in rows]
