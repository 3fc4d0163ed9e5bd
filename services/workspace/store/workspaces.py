"""Workspaces, guarded by the state they are in and by their fence."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from datetime import timedelta

from services.common.database import Database
from services.workspace.store.rows import find, workspace_of
from services.workspace.workspaces import Intent, Origin, Workspace, WorkspaceNotFound, WorkspaceState

Judge = Callable[[Workspace], Awaitable[int]]


@dataclass(frozen=True, slots=True)
class Plan:
    """How an intent is to be carried out: whose directory, where, in which first state.

    `time` is how long PROVISIONING may last; None for what is there already.
    """

    origin: Origin
    state: WorkspaceState
    root: str
    instance_id: str
    time: timedelta | None


class WorkspaceStore:
    """The table `workspace.workspaces`. Every change is guarded by the state it starts from."""

    def __init__(self, database: Database) -> None:
        """The database must be open when a method is called."""
        self._database = database

    async def find(self, project: str, workspace_id: str) -> Workspace | None:
        """A workspace as it stands, or None."""
        async with self._database.connection() as connection:
            return await find(connection, project, workspace_id)

    async def get(self, project: str, workspace_id: str) -> Workspace:
        """A workspace as it stands; WorkspaceNotFound."""
        found = await self.find(project, workspace_id)
        if found is None:
            raise WorkspaceNotFound(project=project, workspace_id=workspace_id)
        return found

    async def list_workspaces(self, project: str, after: str, limit: int) -> list[Workspace]:
        """Those of a project that are not deleted, by id, behind `after`."""
        async with self._database.connection() as connection:
            rows = await connection.fetch(
                """
                SELECT workspace.*, instance.endpoint
                FROM workspace.workspaces AS workspace JOIN workspace.instances AS instance USING (instance_id)
                WHERE project = $1 AND workspace_id > $2 AND state <> 'DELETED'
                ORDER BY workspace_id LIMIT $3
                """,
                project,
                after,
                limit,
            )
        return [workspace_of(row) for row in rows]

    async def insert(self, intent: Intent, plan: Plan) -> Workspace:
        """Store an intent, unless there is one of this id: the stored one."""
        async with self._database.connection() as connection:
            await connection.execute(
                """
                INSERT INTO workspace.workspaces
                    (project, workspace_id, session_id, source, provider, directory,
                     origin, state, root, instance_id, deadline)
                VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, clock_timestamp() + $11::interval)
                ON CONFLICT (project, workspace_id) DO NOTHING
                """,
                intent.project,
                intent.workspace_id,
                intent.session_id,
                intent.source,
                intent.provider,
                intent.directory,
                plan.origin,
                plan.state,
                plan.root,
                plan.instance_id,
                plan.time,
            )
        return await self.get(intent.project, intent.workspace_id)

    async def raise_fence(self, project: str, workspace_id: str, judge: Judge) -> tuple[Workspace, int]:
        """Store the token that `judge` finds shown, unless a higher one is stored (F4).

        `judge` gets the locked row and raises to refuse; nothing has changed then. Returns the row
        as it is now and the shown token. What is wrong besides is decided after this committed.
        """
        async with self._database.transaction() as connection:
            await connection.execute(
                """
                SELECT FROM workspace.workspaces WHERE project = $1 AND workspace_id = $2
                FOR NO KEY UPDATE
                """,
                project,
                workspace_id,
            )
            locked = await find(connection, project, workspace_id)
            if locked is None:
                raise WorkspaceNotFound(project=project, workspace_id=workspace_id)
            token = await judge(locked)
            if token > locked.token:
                await connection.execute(
                    """
                    UPDATE workspace.workspaces SET token = $3
                    WHERE project = $1 AND workspace_id = $2
                    """,
                    project,
                    workspace_id,
                    token,
                )
            return replace(locked, token=max(token, locked.token)), token

    async def mark_deleting(self, project: str, workspace_id: str) -> Workspace:
        """Wish it gone, from every state; one that is going or gone stays as it is."""
        async with self._database.connection() as connection:
            await connection.execute(
                """
                UPDATE workspace.workspaces
                SET state = 'DELETING', state_reason = '', attempts = 0, deadline = NULL,
                    due_at = clock_timestamp(), updated_at = clock_timestamp()
                WHERE project = $1 AND workspace_id = $2 AND state NOT IN ('DELETING', 'DELETED')
                """,
                project,
                workspace_id,
            )
        return await self.get(project, workspace_id)

    async def settle(self, workspace: Workspace, state: WorkspaceState, *, state_reason: str = "") -> bool:
        """Go from the state that was read to the next one; whether it still was in that state."""
        async with self._database.connection() as connection:
            changed = await connection.fetchval(
                """
                UPDATE workspace.workspaces
                SET state = $4, state_reason = $5, deadline = NULL, updated_at = clock_timestamp()
                WHERE project = $1 AND workspace_id = $2 AND state = $3
                RETURNING true
                """,
                workspace.project,
                workspace.workspace_id,
                workspace.state,
                state,
                state_reason,
            )
        return bool(changed)
