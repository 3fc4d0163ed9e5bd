"""Sources to ask for, and what comes of them."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

from moorage.common.v1 import provision_pb2
from moorage.workspace.v1 import workspace_pb2

from tests.workspace.instances import Client

READY = workspace_pb2.WORKSPACE_STATE_READY
FAILED = workspace_pb2.WORKSPACE_STATE_FAILED


def of_git(url: str, **wish: str) -> dict[str, Any]:
    git = provision_pb2.GitSource(url=url, **wish)
    return {"source": provision_pb2.WorkspaceSource(git=git)}


def of_archive(**wish: Any) -> dict[str, Any]:
    archive = provision_pb2.ArchiveSource(**wish)
    return {"source": provision_pb2.WorkspaceSource(archive=archive)}


async def made(client: Client, workspace_id: str = "w1", **wish: Any) -> workspace_pb2.Workspace:
    """The workspace of a wish, settled."""
    await client.provision(workspace_id, provision=provision_pb2.ProvisionSpec(**wish))
    return await client.settled(workspace_id)


async def ready(client: Client, workspace_id: str = "w1", **wish: Any) -> Path:
    """The root of one that must come to be."""
    workspace = await made(client, workspace_id, **wish)
    assert workspace.state == READY, workspace.state_reason
    return Path(workspace.root)


async def refused(client: Client, workspace_id: str = "w1", **wish: Any) -> str:
    """Why one that must not come to be did not; nothing of it is left in its root."""
    workspace = await made(client, workspace_id, **wish)
    assert workspace.state == FAILED
    # The collector may have taken it away by now.
    with contextlib.suppress(FileNotFoundError):
        assert list(Path(workspace.root).iterdir()) == []
    return workspace.state_reason
