"""What states in transition ask for, and the instance that does it."""

from __future__ import annotations

from collections.abc import Collection
from datetime import timedelta

from services.common.database import Database
from services.workspace import texts
from services.workspace.store.rows import workspace_of
from services.workspace.workspaces import Workspace, WorkspaceState

Key = tuple[str, str]


class WorkStore:
    """The work of one instance, and its row in `workspace.instances`."""

    def __init__(self, database: Database, instance_id: str) -> None:
        """The database must be open when a method is called."""
        self._database = database
        self._instance_id = instance_id

    async def take_over(self, endpoint: str, token: int) -> None:
        """Serve as this instance from now on: all its work is due, and others are sent to `endpoint`."""
        async with self._database.transaction() as connection:
            await connection.execute(
                """
                INSERT INTO workspace.instances AS instance (instance_id, endpoint, token)
                VALUES ($1, $2, $3)
                ON CONFLICT (instance_id) DO UPDATE
                SET endpoint = excluded.endpoint, token = excluded.token, updated_at = clock_timestamp()
                WHERE instance.token <= excluded.token
                """,
                self._instance_id,
                endpoint,
                token,
            )
            await connection.execute(
                """
                UPDATE workspace.workspaces SET due_at = clock_timestamp()
                WHERE instance_id = $1 AND state IN ('PROVISIONING', 'DELETING')
                """,
                self._instance_id,
            )

    async def fail_overdue(self) -> list[tuple[str, str]]:
        """End what could not be provisioned in its time; which ones that were."""
        async with self._database.connection() as connection:
            rows = await connection.fetch(
                """
                UPDATE workspace.workspaces
                SET state = 'FAILED', deadline = NULL, updated_at = clock_timestamp(),
                    state_reason = 'not made in time' || CASE state_reason WHEN '' THEN '' ELSE ': ' END
                                   || state_reason
                WHERE instance_id = $1 AND state = 'PROVISIONING' AND deadline <= clock_timestamp()
                RETURNING project, workspace_id
                """,
                self._instance_id,
            )
        return [(row["project"], row["workspace_id"]) for row in rows]

    async def take_due(
        self,
        provider: str,
        state: WorkspaceState,
        limit: int,
        again_in: timedelta,
        busy: Collection[Key] = (),
    ) -> list[Workspace]:
        """Begin what is due in that state; it is due again in `again_in` should nothing be heard of it.

        What is `busy` is being tried already, which is no further attempt.
        """
        async with self._database.connection() as connection:
            rows = await connection.fetch(
                """
                UPDATE workspace.workspaces AS workspace
                SET due_at = clock_timestamp() + $3::interval,
                    attempts = attempts + ((workspace.project, workspace.workspace_id) NOT IN (
                        SELECT * FROM unnest($6::text[], $7::text[])
                    ))::integer
                FROM workspace.instances AS instance
                WHERE instance.instance_id = workspace.instance_id
                  AND (workspace.project, workspace.workspace_id) IN (
                      SELECT project, workspace_id FROM workspace.workspaces
                      WHERE instance_id = $1 AND state = $4 AND state IN ('PROVISIONING', 'DELETING')
                        AND provider = $5 AND due_at <= clock_timestamp()
                      ORDER BY due_at LIMIT $2
                      FOR NO KEY UPDATE SKIP LOCKED
                  )
                RETURNING workspace.*, instance.endpoint
                """,
                self._instance_id,
                limit,
                again_in,
                state,
                provider,
                [project for project, _ in busy],
                [workspace_id for _, workspace_id in busy],
            )
        return [workspace_of(row) for row in rows]

    async def put_off(
        self, workspace: Workspace, delay: timedelta, state_reason: str, *, anew: bool = False
    ) -> None:
        """Try again after `delay`, with the next generation if it is made `anew`.

        `state_reason` says what it waits for.
        """
        async with self._database.connection() as connection:
            await connection.execute(
                """
                UPDATE workspace.workspaces
                SET due_at = clock_timestamp() + $4::interval, state_reason = $5,
                    generation = generation + $6::boolean::integer
                WHERE project = $1 AND workspace_id = $2 AND state = $3
                """,
                workspace.project,
                workspace.workspace_id,
                workspace.state,
                delay,
                texts.reason(state_reason),
                anew,
            )

    async def next_due(self, kinds: Collection[tuple[str, WorkspaceState]]) -> float | None:
        """Seconds until something of these kinds is due, by provider and state, or anything is too late.

        None when there is nothing to do.
        """
        async with self._database.connection() as connection:
            seconds: float | None = await connection.fetchval(
                """
                SELECT extract(epoch FROM min(least(deadline, CASE
                    WHEN (provider, state) IN (SELECT * FROM unnest($2::text[], $3::text[])) THEN due_at
                END)) - clock_timestamp())::float8
                FROM workspace.workspaces
                WHERE instance_id = $1 AND state IN ('PROVISIONING', 'DELETING')
                """,
                self._instance_id,
                [provider for provider, _ in kinds],
                [state for _, state in kinds],
            )
        return seconds

    async def deployment(self) -> str:
        """Names the database, whatever leads to it: instances of two deployments may share a machine."""
        async with self._database.connection() as connection:
            name: str = await connection.fetchval(
                """
                SELECT to_hex(system_identifier) || '-' || (
                    SELECT oid::text FROM pg_database WHERE datname = current_database()
                ) FROM pg_control_system()
                """
            )
        return name
