"""`moorage workspace gc` against a running `up`."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from moorage.common.v1 import provision_pb2
from moorage.workspace.v1 import workspace_pb2
from moorage.workspace.v1.workspace_pb2_grpc import WorkspaceServiceStub

from tests.cli.programs import Place, database_like, up

pytestmark = pytest.mark.timeout(120)


@pytest.fixture(scope="module")
def moored(
    tmp_path_factory: pytest.TempPathFactory, postgres_url: str, template_database: str
) -> Iterator[Place]:
    """A new `moorage up`: it has just looked for garbage, and looks again after a minute."""
    place = Place.below(tmp_path_factory.mktemp("collected"))
    with database_like(postgres_url, template_database) as url, up(place, MOORAGE_DATABASE_URL=url):
        yield place
    place.clean()


def _lost(place: Place, workspace_id: str) -> Path:
    """The directory of a workspace that somebody removed behind the service's back."""
    running = json.loads((place.state / "up.json").read_text())
    with grpc.insecure_channel(running["workspace"]) as channel:
        stub: Any = WorkspaceServiceStub(channel)
        name: dict[str, Any] = {"project": "default", "workspace_id": workspace_id}
        asked = workspace_pb2.ProvisionWorkspaceRequest(
            **name, session_id="s1", provision=provision_pb2.ProvisionSpec()
        )
        root = Path(stub.ProvisionWorkspace(asked).workspace.root)
        stub.GetWorkspace(workspace_pb2.GetWorkspaceRequest(**name, wait=True))
    shutil.rmtree(root)
    return root


def test_a_dry_run_tells_what_a_pass_would_do(moored: Place) -> None:
    root = _lost(moored, "w1")
    told = moored.moorage("workspace", "gc", "--dry-run", "--json")
    assert (told.returncode, told.stderr) == (0, "")
    [garbage] = [json.loads(line) for line in told.stdout.splitlines()]
    assert garbage == {
        "kind": "GARBAGE_KIND_GHOST",
        "provider": "local",
        "project": "default",
        "workspaceId": "w1",
        "resource": str(root),
        "cause": f"{root}: No such file or directory",
    }
    done = moored.moorage("workspace", "gc")
    assert (done.returncode, done.stderr) == (0, "")
    _, _, row, resource = done.stdout.splitlines()
    assert row.split()[:4] == ["ghost", "yes", "default", "w1"]
    assert resource == f"    {root}"
    assert moored.moorage("workspace", "gc").stdout == "nothing to collect\n"
    assert "LOST" in moored.moorage("workspace", "list").stdout


def test_a_provider_that_is_not_there_is_refused(moored: Place) -> None:
    refused = moored.moorage("workspace", "gc", "--provider", "balloon")
    assert refused.returncode == 1
    assert "provider balloon makes no workspaces here: it is not registered" in refused.stderr
