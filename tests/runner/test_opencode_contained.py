"""opencode in a container completes a turn; its model is reached over the workspace's bridge, and by nothing else."""

from __future__ import annotations

import contextlib
import io
import ipaddress
import json
import secrets
import tarfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import docker
import grpc
import pytest
from moorage.common.v1 import provision_pb2, turn_pb2
from moorage.common.v1.errors_pb2 import ErrorReason

from services.common.status import from_rpc_error
from tests.agents.model import Model, serving
from tests.engines import shared_engine
from tests.runner.parts import Stack
from tests.runner.talks import Talks

# It takes seconds to start, on a machine that does nothing else.
pytestmark = pytest.mark.timeout(180)

IMAGE = "moorage-example-opencode"
NONE, BRIDGE = provision_pb2.NETWORK_POLICY_NONE, provision_pb2.NETWORK_POLICY_BRIDGE


@pytest.fixture
def engine() -> Iterator[docker.DockerClient]:
    """The shared engine, with the image of opencode."""
    with contextlib.closing(docker.DockerClient(shared_engine(), timeout=60)) as client:
        if not client.images.list(IMAGE):
            pytest.skip(f"the engine has no image {IMAGE}: make agents, make images")
        yield client


@pytest.fixture
def instance_id(engine: docker.DockerClient) -> Iterator[str]:
    """Names an instance; what it leaves in the engine is removed."""
    instance_id = f"i{secrets.token_hex(4)}"
    yield instance_id
    for container in engine.containers.list(
        all=True, filters={"label": f"io.moorage.instance={instance_id}"}
    ):
        container.remove(force=True, v=True)


@pytest.fixture
def changes(instance_id: str) -> dict[str, dict[str, Any]]:
    """An instance that makes containers."""
    return {
        "workspace": {
            "instance_id": instance_id,
            "docker_host": shared_engine(),
            "docker_images": (IMAGE,),
            "docker_memory": 1 << 30,
            "docker_cpus": 2.0,
        }
    }


@pytest.fixture
async def model(engine: docker.DockerClient) -> AsyncIterator[Model]:
    """A model that listens where the engine's bridge leads to."""
    async with serving(gateway(engine)) as model:
        yield model


def gateway(engine: docker.DockerClient) -> str:
    """This machine's address on the engine's bridge; some engines leave it to its being the first one."""
    [found] = engine.networks.get("bridge").attrs["IPAM"]["Config"]
    return str(found.get("Gateway") or ipaddress.ip_network(found["Subnet"])[1])


def spec(model: Model, network: provision_pb2.NetworkPolicy.ValueType) -> provision_pb2.ProvisionSpec:
    """A container with the agent's configuration in it."""
    provider = {
        "npm": "@ai-sdk/openai-compatible",
        "options": {"baseURL": model.base_url, "apiKey": "none"},
        "models": {"one": {"name": "One"}},
    }
    configuration = {"model": "test/one", "provider": {"test": provider}}
    archive = provision_pb2.ArchiveSource(data=packed("opencode.json", json.dumps(configuration).encode()))
    return provision_pb2.ProvisionSpec(
        provider="docker", network=network, source=provision_pb2.WorkspaceSource(archive=archive)
    )


def packed(name: str, content: bytes) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        info = tarfile.TarInfo(name)
        info.size = len(content)
        archive.addfile(info, io.BytesIO(content))
    return buffer.getvalue()


async def test_a_turn_over_the_bridge(
    stack: Stack, talks: Talks, model: Model, engine: docker.DockerClient, instance_id: str
) -> None:
    await stack.add_runner()
    environment = {"OPENCODE_DISABLE_MODELS_FETCH": "1"}
    fields = {"profile": "opencode", "environment": environment}
    await talks.create("s", provision=spec(model, BRIDGE), wait_ready=True, **fields)
    await talks.start("s", "one", 'use bash {"command": "id -u; pwd; touch made", "description": "Looks"}')
    turn = await talks.ended("s", "one", within=120)
    assert (turn.state, turn.stop_reason) == (turn_pb2.TURN_STATE_COMPLETED, "end_turn"), turn
    workspace = (await talks.session("s")).workspace
    root = Path(stack.state) / "default" / workspace.workspace_id
    user = root.stat().st_uid
    assert user != 0
    assert await talks.said("s", "one") == f"it said: {user}\n{root}\n"
    assert (root / "made").stat().st_uid == user
    assert turn.metadata.workspace_provider == "docker"
    assert set(model.models()) == {"one"}
    await talks.close("s")
    assert not root.exists()
    assert not engine.containers.list(all=True, filters={"label": f"io.moorage.instance={instance_id}"})


async def test_without_a_network_it_is_refused_before_anything_is_made(
    stack: Stack, talks: Talks, model: Model, engine: docker.DockerClient, instance_id: str
) -> None:
    await stack.add_runner()
    with pytest.raises(grpc.aio.AioRpcError) as refusal:
        await talks.create("s", profile="opencode", provision=spec(model, NONE))
    assert from_rpc_error(refusal.value).reason == ErrorReason.ERROR_REASON_NETWORK_REQUIRED
    assert not engine.containers.list(all=True, filters={"label": f"io.moorage.instance={instance_id}"})
