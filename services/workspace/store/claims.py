"""Workspaces of which it is not known that their session is stored (W2)."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from services.common.database import Database
from services.workspace import texts
from services.workspace.store.rows import workspace_of
from services.workspace.workspaces import Workspace


@dataclass(frozen=True, slots=True)
class Unclaimed:
    """One of them; `late` when its session would have been stored by now."""

    workspace: Workspace
    late: bool


class ClaimStore:
    """The rows of one instance that nobody has claimed."""

    def __init__(self, database: Database, instance_id: str, unclaimed_after: float) -> None:
        """`unclaimed_after`: seconds from its creation in which a workspace's session is stored, or never is."""
        self._database = database
        self._instance_id = instance_id
        self._after = timedelta(seconds=unclaimed_after)

    async def unclaimed(self, provider: str, limit: int) -> list[Unclaimed]:
        """Those of a provider that were not asked about for longest."""
        async with self._database.connection() as connection:
            rows = await connection.fetch(
                """
                SELECT workspace.*, instance.endpoint, created_at <= clock_timestamp() - $2::interval AS late
                FROM workspace.workspaces AS workspace JOIN workspace.instances AS instance USING (instance_id)
                WHERE instance_id = $1 AND provider = $3 AND claimed_at IS NULL
                  AND state NOT IN ('DELETING', 'DELETED')
                ORDER BY coalesce(asked_at, created_at), project, workspace_id LIMIT $4
                """,
                self._instance_id,
                self._after,
                provider,
                limit,
            )
        return [Unclaimed(workspace_of(row), row["late"]) for row in rows]

    async def put_last(self, workspace: Workspace) -> None:
        """It is being asked about, and comes behind all others the next time, whatever the answer is."""
        async with self._database.connection() as connection:
            await connection.execute(
                """
                UPDATE workspace.workspaces SET asked_at = clock_timestamp()
                WHERE project = $1 AND workspace_id = $2 AND claimed_at IS NULL
                """,
                workspace.project,
                workspace.workspace_id,
            )

    async def claim(self, workspace: Workspace) -> None:
        """Its session is stored."""
        async with self._database.connection() as connection:
            await connection.execute(
                """
                UPDATE workspace.workspaces SET claimed_at = clock_timestamp()
                WHERE project = $1 AND workspace_id = $2 AND claimed_at IS NULL
                """,
                workspace.project,
                workspace.workspace_id,
            )

    async def abandon(self, workspace: Workspace, cause: str) -> bool:
        """Mark it DELETING unless somebody has claimed it meanwhile; whether nobody had."""
        async with self._database.connection() as connection:
            changed = await connection.fetchval(
                """
                UPDATE workspace.workspaces
                SET state = 'DELETING', state_reason = $4, attempts = 0, deadline = NULL,
                    due_at = clock_timestamp(), updated_at = clock_timestamp()
                WHERE project = $1 AND workspace_id = $2 AND claimed_at IS NULL
                  AND created_at <= clock_timestamp() - $3::interval
                  AND state NOT IN ('DELETING', 'DELETED')
                RETURNING true
                """,
                workspace.project,
                workspace.workspace_id,
                self._after,
                texts.reason(cause),
            )
        return bool(changed)
