"""What a pass of the collector told, in few words."""

from __future__ import annotations

from moorage.workspace.v1 import workspace_pb2

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
