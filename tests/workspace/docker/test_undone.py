"""Creations that are cancelled, repeated or come too late (W1, W2)."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest
from moorage.workspace.v1 import workspace_pb2

from services.common import failpoints
from services.workspace.docker import containers
from services.workspace.docker.engine import Engine
from services.workspace.docker.labels import PREFIX, Labels
from services.workspace.providers.registry import PassedBy
from tests.conditions import eventually
from tests.databases import execute
from tests.workspace.docker.yard import DOCKER, Yard, make
from tests.workspace.instances import PROJECT

DELETED = workspace_pb2.WORKSPACE_STATE_DELETED
READY = workspace_pb2.WORKSPACE_STATE_READY
POINTS = (
    "workspace.docker.before_directory",
    "workspace.docker.before_create",
    "workspace.docker.after_create",
    "workspace.docker.before_start",
    "workspace.docker.after_start",
)


@pytest.mark.parametrize("point", POINTS)
async def test_what_is_given_up_at_any_step_is_taken_up_again(
    point: str, yard: Yard, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The instance ends in the middle of it, so that its work is cancelled; the next one goes on."""
    gate = tmp_path / point
    with monkeypatch.context() as patch:
        patch.setitem(failpoints._active, point, f"pause:{gate}")
        async with yard.running() as (client, _):
            await client.provision(provision=DOCKER)
            await eventually(Path(f"{gate}.reached").exists, within=30)
    async with yard.running() as (client, _):
        assert (await client.settled()).state == READY
        assert len(await yard.containers()) == 1
        await client.delete()
        assert (await client.settled()).state == DELETED
    assert await yard.containers() == []
    assert not yard.directory().exists()


@pytest.mark.parametrize("point", POINTS[2:])
async def test_what_is_deleted_at_any_step_is_gone(
    point: str, yard: Yard, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    gate = tmp_path / point
    monkeypatch.setitem(failpoints._active, point, f"pause:{gate}")
    async with yard.running() as (client, _):
        await client.provision(provision=DOCKER)
        await eventually(Path(f"{gate}.reached").exists, within=30)
        assert len(await yard.containers()) == 1
        await client.delete()
        gate.touch()
        assert (await client.settled()).state == DELETED
        assert await yard.containers() == []
        assert not yard.directory().exists()


async def test_a_container_of_an_earlier_generation_is_another_one(yard: Yard) -> None:
    """So what an engine carries out too late is never taken for what there should be."""
    async with yard.running() as (client, _):
        await make(client)
        await execute(
            yard.machine.database_url,
            "UPDATE workspace.workspaces SET generation = 2, state = 'PROVISIONING', "
            "deadline = clock_timestamp() + interval '1 minute', due_at = clock_timestamp()",
        )
        assert (await client.settled()).state == READY
        assert await _generations(yard) == ["1", "2"]
        await client.stub.CollectGarbage(workspace_pb2.CollectGarbageRequest())
        assert await _generations(yard) == ["2"]


async def test_a_name_that_is_kept_for_nothing_that_can_be_seen_is_passed_by(yard: Yard) -> None:
    """As engines keep the names of what they failed to make, or are about to remove."""
    engine = Engine(yard.address, threads=1, timeout=30.0)
    labels = Labels("d", yard.machine.instance_id, PROJECT, "never-made", 1)
    with pytest.raises(PassedBy):
        await engine.call(partial(containers.adopt, labels))
    engine.close()


async def _generations(yard: Yard) -> list[str]:
    return sorted(each["Labels"][f"{PREFIX}generation"] for each in await yard.containers())
