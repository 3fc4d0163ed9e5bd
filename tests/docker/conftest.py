"""Services that command the engine which all tests share."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator, Iterator

import docker
import pytest
import pytest_asyncio

from services.cli.postgres.embedded import EmbeddedPostgres
from tests.docker.harbour import DEMO, INSTANCE, Harbour, engine_at
from tests.engines import BUSYBOX, remove_all, shared_engine
from tests.servers import own_server
from tests.system.whole import Whole


@pytest.fixture(scope="module")
def engine() -> Iterator[docker.DockerClient]:
    """The shared engine, with the image of the demo agent."""
    with engine_at(shared_engine()) as client:
        if not client.images.list(DEMO):
            pytest.skip(f"the engine has no image {DEMO}: make images")
        yield client


@pytest.fixture(scope="module")
def own_postgres(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedPostgres]:
    """A server of this module's services."""
    with own_server(tmp_path_factory) as server:
        yield server


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def harbour(
    engine: docker.DockerClient, own_postgres: EmbeddedPostgres, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Harbour]:
    """All services; containers that a test leaves behind are removed."""
    directory = tmp_path_factory.mktemp("harbour")
    (directory / "profiles").mkdir()
    instance = f"harbour-{secrets.token_hex(8)}"
    flags = {
        "workspace": (
            *("--docker-host", shared_engine(), "--docker-images", f'["{DEMO}", "{BUSYBOX}"]'),
            *("--instance-id", instance),
        ),
        "runner": (
            *("--terminate-timeout", "0.5", "--lease-ttl", "3"),
            *("--profiles-directory", str(directory / "profiles")),
        ),
    }
    async with Whole(own_postgres, directory, flags) as whole, whole.talks() as talks:
        harbour = Harbour(whole, talks, engine, instance)
        yield harbour
    remove_all(engine, f"{INSTANCE}={instance}")
