"""Archives that came with a request until they are unpacked, and how set-up commands ended."""

from __future__ import annotations

import json
from dataclasses import asdict, replace

from services.common.database import Database
from services.workspace import texts
from services.workspace.sources.results import Result
from services.workspace.workspaces import Workspace


class SourceStore:
    """The tables `workspace.uploads` and `workspace.setups`."""

    def __init__(self, database: Database) -> None:
        """The database must be open when a method is called."""
        self._database = database

    async def keep_upload(self, project: str, workspace_id: str, sha256: str, data: bytes) -> None:
        """Keep an archive for a workspace that is not made yet, and drop those that nobody can want."""
        async with self._database.transaction() as connection:
            await connection.execute(
                """
                DELETE FROM workspace.uploads AS upload
                WHERE stored_at < clock_timestamp() - interval '1 day' OR EXISTS (
                    SELECT FROM workspace.workspaces
                    WHERE project = upload.project AND workspace_id = upload.workspace_id
                      AND state <> 'PROVISIONING'
                )
                """
            )
            await connection.execute(
                """
                INSERT INTO workspace.uploads (project, workspace_id, sha256, data)
                SELECT $1, $2, $3, $4
                WHERE NOT EXISTS (
                    SELECT FROM workspace.workspaces
                    WHERE project = $1 AND workspace_id = $2 AND state <> 'PROVISIONING'
                )
                ON CONFLICT (project, workspace_id, sha256) DO UPDATE SET stored_at = excluded.stored_at
                """,
                project,
                workspace_id,
                sha256,
                data,
            )

    async def upload(self, project: str, workspace_id: str, sha256: str) -> bytes | None:
        """A kept archive."""
        async with self._database.connection() as connection:
            data: bytes | None = await connection.fetchval(
                """
                SELECT data FROM workspace.uploads
                WHERE project = $1 AND workspace_id = $2 AND sha256 = $3
                """,
                project,
                workspace_id,
                sha256,
            )
        return data

    async def drop_unwanted(self, project: str, workspace_id: str) -> None:
        """Drop the archives of a workspace that is not being made (any more)."""
        async with self._database.connection() as connection:
            await connection.execute(
                """
                DELETE FROM workspace.uploads
                WHERE project = $1 AND workspace_id = $2 AND NOT EXISTS (
                    SELECT FROM workspace.workspaces
                    WHERE project = $1 AND workspace_id = $2 AND state = 'PROVISIONING'
                )
                """,
                project,
                workspace_id,
            )

    async def keep_result(self, workspace: Workspace, result: Result) -> None:
        """How its set-up command ended; the last time counts, while it is being made."""
        async with self._database.connection() as connection:
            await connection.execute(
                """
                INSERT INTO workspace.setups (project, workspace_id, result)
                SELECT project, workspace_id, $3::text::jsonb FROM workspace.workspaces
                WHERE project = $1 AND workspace_id = $2 AND state = 'PROVISIONING'
                ON CONFLICT (project, workspace_id) DO UPDATE SET result = excluded.result
                """,
                workspace.project,
                workspace.workspace_id,
                json.dumps(asdict(replace(result, output=texts.storable(result.output)))),
            )

    async def drop_result(self, workspace: Workspace) -> None:
        """It is not known any more, while it is being made."""
        async with self._database.connection() as connection:
            await connection.execute(
                """
                DELETE FROM workspace.setups
                WHERE project = $1 AND workspace_id = $2 AND EXISTS (
                    SELECT FROM workspace.workspaces
                    WHERE project = $1 AND workspace_id = $2 AND state = 'PROVISIONING'
                )
                """,
                workspace.project,
                workspace.workspace_id,
            )

    async def forget(self, workspace: Workspace) -> None:
        """Drop what is kept besides its row."""
        async with self._database.transaction() as connection:
            for statement in (
                "DELETE FROM workspace.setups WHERE project = $1 AND workspace_id = $2",
                "DELETE FROM workspace.uploads WHERE project = $1 AND workspace_id = $2",
            ):
                await connection.execute(statement, workspace.project, workspace.workspace_id)

    async def result(self, project: str, workspace_id: str) -> Result | None:
        """How the set-up command of a workspace ended."""
        async with self._database.connection() as connection:
            stored: str | None = await connection.fetchval(
                "SELECT result::text FROM workspace.setups WHERE project = $1 AND workspace_id = $2",
                project,
                workspace_id,
            )
        return None if stored is None else Result(**json.loads(stored))
