"""The keys that sign grants."""

from __future__ import annotations

from datetime import timedelta

from services.common.database import Connection, Database
from services.owner.keys import KeySchedule, NewKey, StoredKey
from services.owner.store.durability import commit_durably


class KeyStore:
    """The table `owner.grant_keys`."""

    def __init__(self, database: Database, schedule: KeySchedule) -> None:
        """The database must be open when a method is called."""
        self._database = database
        self._schedule = schedule

    async def keys(self) -> list[StoredKey]:
        """All keys that verify, newest first."""
        async with self._database.connection() as connection:
            return await _keys(connection, self._schedule.notice)

    async def agree_on_keys(self, candidate: NewKey) -> list[StoredKey]:
        """All keys, newest first, with `candidate` among them if it is time for a new one.

        Those that were replaced long enough ago are dropped. Replicas that do this at the
        same time get the same keys.
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
                self._schedule.lifetime,
            )
            await connection.execute(
                """
                DELETE FROM owner.grant_keys AS old USING owner.grant_keys AS newer
                WHERE newer.created_at > old.created_at
                  AND newer.created_at < clock_timestamp() - $1::interval
                """,
                self._schedule.notice + self._schedule.overlap,
            )
            return await _keys(connection, self._schedule.notice)


async def _keys(connection: Connection, notice: timedelta) -> list[StoredKey]:
    rows = await connection.fetch(
        """
        SELECT kid, private_key, created_at, created_at <= clock_timestamp() - $1::interval AS is_noticed
        FROM owner.grant_keys ORDER BY created_at DESC, kid
        """,
        notice,
    )
    return [StoredKey(row["kid"], row["private_key"], row["created_at"], row["is_noticed"]) for row in rows]
