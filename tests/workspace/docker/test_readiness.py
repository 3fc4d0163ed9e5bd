"""That containers cannot have their helper is told, not raised, and looked at again until they can (W5)."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from moorage.workspace.v1 import workspace_pb2

from services.common.errors import MoorageError
from services.workspace.docker.containers import User
from services.workspace.docker.ground import Ground
from services.workspace.docker.readiness import Readiness
from tests.conditions import eventually
from tests.workspace.docker.yard import DOCKER, Yard, make
from tests.workspace.instances import Client

READY = workspace_pb2.WORKSPACE_STATE_READY


async def test_what_cannot_be_looked_at_is_a_cause(tmp_path: Path) -> None:
    async def renew() -> None:
        """Not come to."""

    readiness = Readiness(Ground("bridge", f"{tmp_path}/{'x' * 300}", User(1, 1), "one"), renew)
    assert "File name too long" in await readiness.look()
    assert readiness.cause


async def test_it_is_looked_at_off_the_event_loop_until_it_is_well(tmp_path: Path) -> None:
    looked: list[threading.Thread] = []
    failing = True

    class Watched(Ground):
        def barred(self) -> str:
            looked.append(threading.current_thread())
            return super().barred()

    async def renew() -> None:
        if failing:
            raise PermissionError(13, "Permission denied", str(tmp_path))

    readiness = Readiness(Watched("bridge", str(tmp_path), User(1, 1), "one"), renew)
    for _ in range(2):
        assert f"Permission denied: '{tmp_path}'" in await readiness.look()
    failing = False
    for _ in range(3):
        assert not await readiness.look()
    assert len(looked) == 3
    assert threading.current_thread() not in looked


async def test_a_helper_that_is_not_in_its_place_at_the_start_is_told_until_it_is(yard: Yard) -> None:
    """Containers would be made, and each command in them would fail."""
    in_the_way = yard.machine.state / ".helper"
    yard.machine.state.mkdir(exist_ok=True)
    in_the_way.write_text("in the way")
    async with yard.running() as (client, _):
        told = await _docker(client)
        assert "the helper of containers cannot be put in place" in told.unavailable_cause
        assert not told.enabled
        with pytest.raises(MoorageError, match="cannot be put in place") as caught:
            await client.provision(provision=DOCKER)
        assert caught.value.reason_name == "PROVIDER_UNAVAILABLE"
        in_the_way.unlink()
        await eventually(lambda: _is_well(client), within=30, what="it is found to be in its place")
        assert (await make(client)).state == READY


async def _docker(client: Client) -> workspace_pb2.Provider:
    providers = (await client.stub.ListProviders(workspace_pb2.ListProvidersRequest())).providers
    return next(each for each in providers if each.name == "docker")


async def _is_well(client: Client) -> bool:
    told = await _docker(client)
    return told.enabled and not told.unavailable_cause
