"""Workspaces, guarded by the state they are in and by their fence."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from datetime import timedelta

from services.common.database import Database
from services.workspace import texts
from services.workspace.specs import Spec
from services.workspace.store.rows import find, json_of, workspace_of
from services.workspace.workspaces import (
    Intent,
    Origin,
    QuotaExceeded,
    Workspace,
    WorkspaceNotFound,
    WorkspaceState,
)

Judge = Callable[[Workspace], Awaitable[int]]


@dataclass(frozen=True, slots=True)
class Bounds:
    """Of what is made: how long it may take, and how many a project may have; None is no bound."""

    time: timedelta | None
    quota: int | None


@dataclass(frozen=True, slots=True)
class Plan:
    """How an intent is to be carried out: whose directory, where, in which first state.

    `spec` and `bounds` are there when something is to be made.
    """

    origin: Origin
    state: WorkspaceState
    root: str
    instance_id: str
    spec: Spec | None = None
    bounds: Bounds = Bounds(None, None)


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
        """Store an intent, unless there is one of this id: the stored one; QuotaExceeded (W9)."""
        async with self._database.transaction() as connection:
            if plan.bounds.quota is not None:
                # Those who count at the same time would all find room for themselves.
                await connection.execute(
                    "SELECT pg_advisory_xact_lock(hashtextextended('workspaces of ' || $1, 0))",
                    intent.project,
                )
            await connection.execute(
                """
                INSERT INTO workspace.workspaces
                    (project, workspace_id, session_id, source, provider, directory,
                     origin, state, root, instance_id, deadline, asked, spec, ttl, idle_ttl)
                SELECT $1, $2, $3, $4, $5, $6, $7, $8, $9, $10, clock_timestamp() + $11::interval,
                       $12, $13, $14, $15
                WHERE $16::bigint IS NULL OR $16 > (
                    SELECT count(*) FROM workspace.workspaces
                    WHERE project = $1 AND origin = 'PROVISIONED'
                      AND state IN ('PROVISIONING', 'READY', 'LOST')
                )
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
                plan.bounds.time,
                json_of(intent.asked),
                json_of(plan.spec),
                plan.spec.ttl if plan.spec else None,
                plan.spec.idle_ttl if plan.spec else None,
                plan.bounds.quota,
            )
            stored = await find(connection, intent.project, intent.workspace_id)
        if stored is None:
            raise QuotaExceeded(project=intent.project, quota=plan.bounds.quota)
        return stored

    async def raise_fence(self, project: str, workspace_id: str, judge: Judge) -> tuple[Workspace, int]:
        """Store the token that `judge` finds shown, unless a higher one is stored (F4), and the use.

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
            await connection.execute(
                """
                UPDATE workspace.workspaces
                SET token = greatest(token, $3), used_at = clock_timestamp(),
                    claimed_at = coalesce(claimed_at, clock_timestamp())
                WHERE project = $1 AND workspace_id = $2 AND token <= $3
                  -- a use is written down now and then, not each time
                  AND (token < $3 OR claimed_at IS NULL OR used_at IS NULL
                       OR used_at < clock_timestamp() - least(interval '1 minute', idle_ttl / 4))
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

    async def delete_later(self, project: str, workspace_id: str, after: timedelta) -> Workspace:
        """Wish it gone `after` from now, or when somebody wished before; the collector marks it then."""
        async with self._database.connection() as connection:
            await connection.execute(
                """
                UPDATE workspace.workspaces SET delete_at = least(delete_at, clock_timestamp() + $3::interval)
                WHERE project = $1 AND workspace_id = $2 AND state NOT IN ('DELETING', 'DELETED')
                """,
                project,
                workspace_id,
                after,
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
                texts.reason(state_reason),
            )
        return bool(changed)
