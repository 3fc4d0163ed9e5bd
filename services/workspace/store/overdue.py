"""Workspaces whose time is over: judged and marked by one guarded statement each.

A dry run is the very same statement, rolled back.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Collection

from services.common.database import Connection, Database
from services.workspace.store.rows import workspace_of
from services.workspace.workspaces import Workspace

Key = tuple[str, str]


class OverdueStore:
    """The rows of one instance that nobody asked to delete now."""

    def __init__(self, database: Database, instance_id: str) -> None:
        """The database must be open when a method is called."""
        self._database = database
        self._instance_id = instance_id

    async def expire(self, provider: str, limit: int, *, dry_run: bool) -> list[Workspace]:
        """Mark DELETING what has outlived its ttl, or was to go after a while; `state_reason` tells."""
        async with self._judging(dry_run=dry_run) as connection:
            rows = await connection.fetch(
                """
                UPDATE workspace.workspaces AS workspace
                SET state = 'DELETING', attempts = 0, deadline = NULL,
                    due_at = clock_timestamp(), updated_at = clock_timestamp(),
                    state_reason = CASE
                        WHEN delete_at <= clock_timestamp() THEN 'the time after which it was to go is over'
                        ELSE 'its ttl of ' || extract(epoch FROM ttl)::float8 || ' s is over'
                    END
                FROM workspace.instances AS instance
                WHERE instance.instance_id = workspace.instance_id
                  AND (project, workspace_id) IN (
                      SELECT project, workspace_id FROM workspace.workspaces
                      WHERE instance_id = $1 AND provider = $2 AND state NOT IN ('DELETING', 'DELETED')
                        AND least(delete_at, created_at + ttl) <= clock_timestamp()
                      ORDER BY created_at LIMIT $3
                      FOR NO KEY UPDATE SKIP LOCKED
                  )
                RETURNING workspace.*, instance.endpoint
                """,
                self._instance_id,
                provider,
                limit,
            )
        return [workspace_of(row) for row in rows]

    async def retire(
        self, provider: str, limit: int, in_use: Collection[Key] = (), *, dry_run: bool
    ) -> list[Workspace]:
        """Mark DELETING what was made and then not used for its idle_ttl; `state_reason` tells.

        Those `in_use` are used now, which is written down.
        """
        async with self._judging(dry_run=dry_run) as connection:
            await connection.execute(
                """
                UPDATE workspace.workspaces SET used_at = clock_timestamp()
                WHERE instance_id = $3 AND provider = $4
                  AND (project, workspace_id) IN (SELECT * FROM unnest($1::text[], $2::text[]))
                  AND (used_at IS NULL
                       OR used_at < clock_timestamp() - least(interval '1 minute', idle_ttl / 4))
                """,
                [project for project, _ in in_use],
                [workspace_id for _, workspace_id in in_use],
                self._instance_id,
                provider,
            )
            rows = await connection.fetch(
                """
                UPDATE workspace.workspaces AS workspace
                SET state = 'DELETING', attempts = 0, deadline = NULL,
                    due_at = clock_timestamp(), updated_at = clock_timestamp(),
                    state_reason = 'it was not used for ' || extract(epoch FROM idle_ttl)::float8 || ' s'
                FROM workspace.instances AS instance
                WHERE instance.instance_id = workspace.instance_id
                  AND (project, workspace_id) IN (
                      SELECT project, workspace_id FROM workspace.workspaces
                      WHERE instance_id = $1 AND provider = $2 AND state IN ('READY', 'LOST')
                        -- what is being made is no idler, however long that takes: it counts from the end
                        -- of that; and a use is written down with a delay, which is not idleness either
                        AND greatest(used_at, updated_at) + idle_ttl + least(interval '1 minute', idle_ttl / 4)
                            <= clock_timestamp()
                      ORDER BY created_at LIMIT $3
                      FOR NO KEY UPDATE SKIP LOCKED
                  )
                RETURNING workspace.*, instance.endpoint
                """,
                self._instance_id,
                provider,
                limit,
            )
        return [workspace_of(row) for row in rows]

    @contextlib.asynccontextmanager
    async def _judging(self, *, dry_run: bool) -> AsyncIterator[Connection]:
        with contextlib.suppress(_NotMeantError):
            async with self._database.transaction() as connection:
                yield connection
                if dry_run:
                    raise _NotMeantError


class _NotMeantError(Exception):
    """Rolls back."""
