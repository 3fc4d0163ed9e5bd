"""What a pass of the collector told, in few words."""

from __future__ import annotations

from typing import Any

from moorage.workspace.v1 import workspace_pb2

from tests.databases import fetch

Found = tuple[str, str, bool]


def told(answer: workspace_pb2.CollectGarbageResponse) -> list[Found]:
    """Kind, workspace and whether it was dealt with, of each finding."""
    return [
        (
            workspace_pb2.GarbageKind.Name(each.kind).removeprefix("GARBAGE_KIND_").lower(),
            each.workspace_id,
            each.done,
        )
        for each in answer.garbage
    ]


async def rows(database_url: str) -> list[dict[str, Any]]:
    """All that is stored of workspaces, as it is now."""
    query = "SELECT * FROM workspace.workspaces ORDER BY project, workspace_id"
    return [dict(row) for row in await fetch(database_url, query)]
