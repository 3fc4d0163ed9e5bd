"""One deployment for all tests of this folder."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator, Iterator

import pytest

from services.common.channels import open_channel
from tests.deploy.deployment import PATIENCE, Deployment, compose_command, missing
from tests.runner.talks import Talks


@pytest.fixture(scope="module")
def deployment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    """Started, with everything in it ready; gone afterwards."""
    if cause := missing():
        pytest.skip(cause)
    name = f"moorage-test-{secrets.token_hex(4)}"
    deployment = Deployment(name, tmp_path_factory.mktemp("deployment"), tuple(compose_command() or ()))
    deployment.prepare()
    try:
        deployment.compose("up", "--detach", "--wait", within=2 * PATIENCE)
        yield deployment
    except BaseException:
        print(deployment.compose("logs", "--no-color", "--tail", "200"))
        raise
    finally:
        deployment.compose("down", "--volumes", "--timeout", "1")


@pytest.fixture
async def talks(deployment: Deployment) -> AsyncIterator[Talks]:
    """A client of the first session service."""
    async with open_channel(deployment.address("session-a")) as channel:
        yield Talks(channel)


@pytest.fixture
async def either(deployment: Deployment) -> AsyncIterator[Talks]:
    """A client of both session services, taking turns."""
    addresses = ",".join(deployment.address(service) for service in ("session-a", "session-b"))
    async with open_channel(f"ipv4:{addresses}") as channel:
        yield Talks(channel)
