"""Rows as the domain's values."""

from __future__ import annotations

import json

import asyncpg

from services.common.database import Connection
from services.workspace.specs import Spec
from services.workspace.workspaces import Origin, Source, Workspace, WorkspaceState


async def find(connection: Connection, project: str, workspace_id: str) -> Workspace | None:
    """A workspace with the endpoint of its instance."""
    row = await connection.fetchrow(
        """
        SELECT workspace.*, instance.endpoint
        FROM workspace.workspaces AS workspace JOIN workspace.instances AS instance USING (instance_id)
        WHERE project = $1 AND workspace_id = $2
        """,
        project,
        workspace_id,
    )
    return None if row is None else workspace_of(row)


def workspace_of(row: asyncpg.Record) -> Workspace:
    """What a row with the endpoint says."""
    return Workspace(
        project=row["project"],
        workspace_id=row["workspace_id"],
        session_id=row["session_id"],
        source=Source(row["source"]),
        provider=row["provider"],
        directory=row["directory"],
        asked=_spec(row["asked"]),
        origin=Origin(row["origin"]),
        state=WorkspaceState(row["state"]),
        state_reason=row["state_reason"],
        root=row["root"],
        instance_id=row["instance_id"],
        endpoint=row["endpoint"],
        token=row["token"],
        attempts=row["attempts"],
        spec=_spec(row["spec"]),
        generation=row["generation"],
        create_time=row["created_at"],
        update_time=row["updated_at"],
        use_time=row["used_at"],
        delete_time=row["delete_at"],
    )


def json_of(spec: Spec | None) -> str | None:
    """As it is stored."""
    return None if spec is None else json.dumps(spec.to_json())


def _spec(stored: str | None) -> Spec | None:
    return None if stored is None else Spec.from_json(json.loads(stored))
