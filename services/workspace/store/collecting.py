"""What the collector asks of the rows, and what it does to them. Each judgement is one statement."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from services.common.database import Database
from services.workspace.collector.garbage import Standing
from services.workspace.store.rows import workspace_of
from services.workspace.workspaces import Workspace, WorkspaceState

Key = tuple[str, str]


class CollectingStore:
    """The rows of one instance, as the collector looks at them."""

    def __init__(self, database: Database, instance_id: str) -> None:
        """The database must be open when a method is called."""
        self._database = database
        self._instance_id = instance_id

    async def standings(self, keys: Collection[Key]) -> dict[Key, Standing]:
        """What is stored under these names, whoever carries it."""
        async with self._database.connection() as connection:
            rows = await connection.fetch(
                """
                SELECT project, workspace_id, state, generation FROM workspace.workspaces
                WHERE (project, workspace_id) IN (SELECT * FROM unnest($1::text[], $2::text[]))
                """,
                [project for project, _ in keys],
                [workspace_id for _, workspace_id in keys],
            )
        return {
            (row["project"], row["workspace_id"]): Standing(WorkspaceState(row["state"]), row["generation"])
            for row in rows
        }

    async def forbid(self, key: Key, provider: str, root: str) -> Standing:
        """Store that a workspace of which only remains are known is deleted: none can be made of this name.

        One that is stored stays as it is. Either way, what is stored now.
        """
        async with self._database.connection() as connection:
            await connection.execute(
                """
                INSERT INTO workspace.workspaces
                    (project, workspace_id, session_id, source, provider, directory, origin, state,
                     state_reason, root, instance_id)
                VALUES ($1, $2, '', 'PROVISION', $3, '', 'PROVISIONED', 'DELETED',
                        'only remains of it were found', $4, $5)
                ON CONFLICT (project, workspace_id) DO NOTHING
                """,
                *key,
                provider,
                root,
                self._instance_id,
            )
        return (await self.standings([key]))[key]

    async def has_any(self, provider: str) -> bool:
        """Whether there is a workspace of a provider that is not deleted."""
        async with self._database.connection() as connection:
            found = await connection.fetchval(
                """
                SELECT EXISTS (
                    SELECT FROM workspace.workspaces
                    WHERE instance_id = $1 AND provider = $2 AND state <> 'DELETED'
                )
                """,
                self._instance_id,
                provider,
            )
        return bool(found)

    async def made(self, provider: str) -> Sequence[Workspace]:
        """Those of a provider that are READY and not supplied."""
        async with self._database.connection() as connection:
            rows = await connection.fetch(
                """
                SELECT workspace.*, instance.endpoint
                FROM workspace.workspaces AS workspace JOIN workspace.instances AS instance USING (instance_id)
                WHERE instance_id = $1 AND provider = $2 AND state = 'READY' AND origin = 'PROVISIONED'
                ORDER BY project, workspace_id
                """,
                self._instance_id,
                provider,
            )
        return [workspace_of(row) for row in rows]
