"""CreateSession with a container that fails, is cancelled or loses a race: nothing stays without its session (W2)."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from pathlib import Path

import docker
import pytest
from moorage.common.v1 import provision_pb2
from moorage.session.v1 import session_pb2

from services.common import failpoints
from services.common.channels import open_channel
from services.common.errors import AlreadyExists, FailedPrecondition, MoorageError
from tests.conditions import eventually
from tests.docker.harbour import INSTANCE
from tests.engines import BUSYBOX, containers_of, remove_all, shared_engine
from tests.session.clients import Client
from tests.session.leasing import Taker
from tests.session.places import NOWHERE, Places, running_owner, running_session, running_workspace
from tests.session.tables import counts, workspaces

AFTER_PROVISION = "session.create_session.after_provision"
Until = Callable[[], Awaitable[None]]
DOCKER = provision_pb2.ProvisionSpec(provider="docker")


@pytest.fixture
def instance() -> str:
    return f"undone-{secrets.token_hex(8)}"


@pytest.fixture
async def places(
    database_url: str, tmp_path: Path, instance: str, engine: docker.DockerClient
) -> AsyncIterator[Places]:
    """All services but runners, in this process."""
    root = tmp_path / "root"
    root.mkdir()
    async with running_owner(database_url) as owner:
        workspace = running_workspace(
            database_url,
            owner,
            root=root,
            state_directory=tmp_path / "state",
            instance_id=instance,
            docker_host=shared_engine(),
            docker_images=(BUSYBOX,),
        )
        async with workspace as address:
            yield Places(database_url, owner, address)
    remove_all(engine, f"{INSTANCE}={instance}")


@pytest.fixture
async def client(places: Places) -> AsyncIterator[Client]:
    async with running_session(places) as replica, open_channel(replica.endpoint) as channel:
        yield Client(channel, patience=60.0)


@pytest.fixture
def containers(engine: docker.DockerClient, instance: str) -> Callable[[], int]:
    """How many there are, in any state."""
    return lambda: len(containers_of(engine, f"{INSTANCE}={instance}"))


@pytest.fixture
def empty(places: Places, tmp_path: Path, containers: Callable[[], int]) -> Until:
    """Return when neither container nor directory nor workspace is left."""

    async def holds() -> bool:
        states = set((await workspaces(places.database_url)).values())
        left = list((tmp_path / "state").glob("[!.]*/*"))
        return states <= {"DELETED"} and not left and containers() == 0

    return partial(eventually, holds, within=60, what="nothing is left")


async def test_a_caller_that_goes_away_before_the_session_is_stored_leaves_nothing(
    client: Client,
    places: Places,
    tmp_path: Path,
    empty: Until,
    containers: Callable[[], int],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pause = tmp_path / "pause"
    monkeypatch.setitem(failpoints._active, AFTER_PROVISION, f"pause:{pause}")
    calling = asyncio.create_task(client.create(provision=DOCKER))
    await eventually(pause.with_name("pause.reached").exists, within=30)
    await eventually(lambda: containers() == 1, within=30)
    calling.cancel()
    await empty()
    assert (await counts(places.database_url))["sessions"] == 0


async def test_an_error_before_the_session_is_stored_leaves_nothing(
    client: Client, empty: Until, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(failpoints._active, AFTER_PROVISION, "error")
    with pytest.raises(MoorageError, match="internal error"):
        await client.create(provision=DOCKER)
    await empty()


async def test_who_loses_the_race_for_an_id_leaves_nothing_and_who_wins_has_one_container(
    client: Client, places: Places, containers: Callable[[], int]
) -> None:
    calls = (client.create(session_id="s1", provision=DOCKER, wait_ready=True) for _ in range(4))
    results = await asyncio.gather(*calls, return_exceptions=True)
    [made] = [result for result in results if isinstance(result, session_pb2.Session)]
    assert sum(isinstance(result, AlreadyExists) for result in results) == 3

    async def one() -> bool:
        states = await workspaces(places.database_url)
        others = {state for name, state in states.items() if name != made.workspace.workspace_id}
        return others <= {"DELETED"} and containers() == 1

    await eventually(one, within=60, what="one container is left")
    assert (await client.get("s1")).workspace.state == "READY"


async def test_a_repeated_call_finds_the_session_and_its_container(
    client: Client, places: Places, containers: Callable[[], int]
) -> None:
    calls = (client.create(request_id="r1", provision=DOCKER, wait_ready=True) for _ in range(3))
    made = await asyncio.gather(*calls)
    again = await client.create(request_id="r1", provision=DOCKER, wait_ready=True)
    assert {(each.session_id, each.workspace.workspace_id) for each in [*made, again]} == {
        (again.session_id, again.workspace.workspace_id)
    }
    assert again.workspace.state == "READY"
    await eventually(lambda: containers() == 1, within=60)


async def test_without_a_wish_the_instance_decides_about_the_network_and_an_agent_that_needs_one_is_refused(
    client: Client, places: Places, empty: Until
) -> None:
    async with open_channel(places.owner_address) as owner:
        await Taker(owner).runner("one", NOWHERE, profiles="demo,coder", networked="coder")
        with pytest.raises(FailedPrecondition) as refusal:
            await client.create(agent=session_pb2.AgentSpec(profile="coder"), provision=DOCKER)
    assert refusal.value.reason_name == "NETWORK_REQUIRED"
    assert (refusal.value.metadata["profile"], refusal.value.metadata["network"]) == ("coder", "NONE")
    await empty()
    # The demo agent needs none.
    made = await client.create(provision=DOCKER, wait_ready=True)
    assert (made.workspace.state, made.workspace.network) == ("READY", provision_pb2.NETWORK_POLICY_NONE)
