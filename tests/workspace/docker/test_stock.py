"""What is told of an engine: its version, and which images it lacks; nobody waits for one that hangs (W5)."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import AsyncIterator
from pathlib import Path

import docker
import pytest
from moorage.workspace.v1 import workspace_pb2

from services.workspace.docker import engine as engines
from services.workspace.docker import stock
from services.workspace.docker.engine import Engine
from services.workspace.docker.stock import Stock
from tests.engines import BUSYBOX, shared_engine
from tests.workspace.docker.yard import MISSING, Yard
from tests.workspace.instances import Client

pytestmark = pytest.mark.timeout(60)


@contextlib.asynccontextmanager
async def looked_at(engine: Engine, *images: str) -> AsyncIterator[Stock]:
    """What is known of it, looked at for the block as a provider does."""
    kept = Stock(engine, images)

    async def look() -> None:
        while True:
            await kept.look()
            await engine.rest()

    looking = asyncio.create_task(look())
    try:
        yield kept
    finally:
        looking.cancel()
        await asyncio.wait([looking])
        engine.close()


@pytest.fixture
def image() -> str:
    """The name of an image of this test only, which is not there yet."""
    return f"moorage-test:stock-{os.urandom(6).hex()}"


async def test_images_that_are_built_or_removed_are_noticed_at_once(
    image: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engines, "_LOOK", 3600.0)
    monkeypatch.setattr(stock, "_MOMENT", 30.0)
    with contextlib.closing(docker.DockerClient(shared_engine(), timeout=30)) as client:
        engine = Engine(shared_engine(), threads=2, timeout=30.0)
        async with looked_at(engine, BUSYBOX, image, "No Name") as kept:
            told = await kept.state()
            assert (told.address, told.version, told.cause) == (
                shared_engine(),
                client.version()["Version"],
                "",
            )
            assert told.missing_images == (image, "No Name")
            client.images.get(BUSYBOX).tag(image)
            try:
                assert (await kept.state()).missing_images == ("No Name",)
            finally:
                client.images.remove(image)
            assert image in (await kept.state()).missing_images


async def test_an_engine_that_hangs_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each look takes as long as the engine may, and longer than this test."""
    monkeypatch.setattr(stock, "_MOMENT", 0.01)
    with socket.socket(socket.AF_UNIX) as silent:
        silent.bind(str(tmp_path / "socket"))
        silent.listen()
        async with looked_at(Engine(f"unix://{tmp_path}/socket", threads=2, timeout=3600.0)) as kept:
            for _ in range(3):
                told = await kept.state()
                assert (told.version, told.cause) == ("", "")


async def test_an_engine_that_is_not_there_is_told_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stock, "_MOMENT", 30.0)
    async with looked_at(Engine(f"unix://{tmp_path}/socket", threads=2, timeout=30.0)) as kept:
        told = await kept.state()
        assert (told.version, told.cause.startswith("no engine at unix://")) == ("", True)


async def test_callers_are_told_what_the_engine_lacks(client: Client) -> None:
    told = await _docker(client)
    assert (told.enabled, told.withheld, told.unavailable_cause) == (True, False, "")
    assert told.engine.version
    assert (told.engine.address, list(told.engine.missing_images)) == (shared_engine(), [MISSING])


async def test_of_containers_that_are_not_wanted_no_engine_is_told(yard: Yard) -> None:
    async with yard.running(provision_enabled=False) as (client, _):
        told = await _docker(client)
    assert (told.enabled, told.withheld, told.HasField("engine")) == (False, True, False)
    assert told.unavailable_cause == "provisioning is disabled"


def test_a_socket_that_is_closed_to_us_names_the_group_it_is_open_to(tmp_path: Path) -> None:
    file = tmp_path / "socket"
    file.touch()
    file.chmod(0o660)
    group = engines._group(file.stat().st_gid)
    assert engines._advice(str(file)) == f"; whoever runs this service must be in group {group}"
    file.chmod(0o600)
    assert engines._advice(str(file)) == engines._advice(str(tmp_path / "none")) == ""


async def _docker(client: Client) -> workspace_pb2.Provider:
    providers = (await client.stub.ListProviders(workspace_pb2.ListProvidersRequest())).providers
    return next(each for each in providers if each.name == "docker")
