"""What a set-up command may reach, and what a workspace reaches that is READY, whatever fails in between (W10)."""

from __future__ import annotations

import json
import signal
import threading
from collections.abc import AsyncIterator
from pathlib import Path

import docker
import pytest
from moorage.common.v1 import provision_pb2
from moorage.workspace.v1 import workspace_pb2

from services.workspace.docker import containers
from tests.conditions import eventually
from tests.workspace.docker.yard import Yard
from tests.workspace.instances import Client
from tests.workspace.real import started
from tests.workspace.sources.wishes import FAILED, READY

NONE, BRIDGE = provision_pb2.NETWORK_POLICY_NONE, provision_pb2.NETWORK_POLICY_BRIDGE
NOT_GOING = "test -e go && exit 3; echo run >> runs; while ! test -e go; do sleep 0.05; done"


@pytest.fixture
async def network(yard: Yard) -> AsyncIterator[str]:
    """A network of the engine that can be taken away."""
    name = f"moorage-test-{yard.machine.instance_id}"
    await yard.ask("create_network", name, driver="bridge")
    yield name
    await yard.clear()
    for each in await yard.ask("networks", names=[name]):
        await yard.ask("remove_network", each["Id"])


def isolated(script: str) -> provision_pb2.ProvisionSpec:
    """A workspace with a network, but none for its command."""
    setup = provision_pb2.SetupCommand(command=["sh", "-c", script], network=NONE)
    return provision_pb2.ProvisionSpec(provider="docker", network=BRIDGE, setup=setup)


async def lose(yard: Yard, network: str, client: Client, script: str) -> Path:
    """Begin a command, take away the network that its workspace is to have, and let the command end."""
    await client.provision(provision=isolated(script))
    runs = yard.directory() / "runs"
    await eventually(runs.exists, within=30, what="it runs")
    await yard.ask("remove_network", network)
    (yard.directory() / "go").touch()
    return runs


async def test_a_network_that_cannot_be_given_is_waited_for(yard: Yard, network: str) -> None:
    """The command, which would fail now, is not run again for it."""
    async with yard.running(docker_bridge_network=network) as (client, _):
        runs = await lose(yard, network, client, NOT_GOING)

        async def waits() -> bool:
            workspace = await client.get()
            assert workspace.state == workspace_pb2.WORKSPACE_STATE_PROVISIONING, workspace.state_reason
            return network in workspace.state_reason

        await eventually(waits, within=30, what="it waits for its network")
        await yard.ask("create_network", network, driver="bridge")
        workspace = await client.settled()
        assert workspace.state == READY, workspace.state_reason
        assert workspace.setup.ended == workspace_pb2.ExecEnded(exit_code=0)
        assert runs.read_text() == "run\n"
        assert list((await yard.inspect())["NetworkSettings"]["Networks"]) == [network]


async def test_a_command_that_failed_needs_no_network(yard: Yard, network: str) -> None:
    async with yard.running(docker_bridge_network=network) as (client, _):
        await lose(yard, network, client, f"{NOT_GOING}; exit 4")
        workspace = await client.settled()
        assert (workspace.state, workspace.state_reason) == (FAILED, "its set-up command ended with 4")


async def test_the_first_error_is_told(yard: Yard, network: str) -> None:
    """And not that the network is gone, which its workspace would have next."""
    async with yard.running(docker_bridge_network=network, first_retry=60.0, longest_retry=60.0) as (
        client,
        _,
    ):
        await lose(yard, network, client, f"{NOT_GOING}; kill -9 $PPID; sleep 1000")

        async def told() -> bool:
            return bool((await client.get()).state_reason)

        await eventually(told, within=30, what="it is told what it waits for")
        assert (await client.get()).state_reason == "it is not known how its set-up command ended"


async def test_what_its_command_may_reach_is_gone_when_it_is_ready(yard: Yard) -> None:
    """Though the service was killed when the command had ended, before it took it away."""
    flags = [f"--{name.replace('_', '-')}={_flag(value)}" for name, value in yard.settings.items()]
    setup = provision_pb2.SetupCommand(command=["sh", "-c", "echo run >> runs"], network=BRIDGE)
    spec = provision_pb2.ProvisionSpec(provider="docker", network=NONE, setup=setup)
    point = "workspace.setup.after_result"
    async with started(
        yard.machine, "--lease-ttl", "4", *flags, MOORAGE_FAILPOINTS=f"{point}=kill"
    ) as service:
        client = await service.client()
        await client.provision(provision=spec)
        assert await service.process.wait() == -signal.SIGKILL
        await client.channel.close()
    assert list((await yard.inspect())["NetworkSettings"]["Networks"]) == ["bridge"]
    async with yard.running() as (client, _):
        workspace = await client.settled()
        assert workspace.state == READY, workspace.state_reason
    assert list((await yard.inspect())["NetworkSettings"]["Networks"]) == ["none"]
    assert (yard.directory() / "runs").read_text() == "run\n"


async def test_a_change_that_comes_late_comes_before_the_next_one(
    yard: Yard, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody waits any more for the wider network; given after the usual one it would stay."""
    released, connect, begun = threading.Event(), containers.connect, threading.Event()

    def late(container_id: str, network: str, client: docker.DockerClient) -> None:
        if not begun.is_set():
            begun.set()
            released.wait()
        connect(container_id, network, client)

    monkeypatch.setattr(containers, "connect", late)
    setup = provision_pb2.SetupCommand(command=["true"], network=BRIDGE)
    spec = provision_pb2.ProvisionSpec(provider="docker", network=NONE, setup=setup)
    async with yard.running(docker_timeout=2.0) as (client, _):
        await client.provision(provision=spec)

        async def waits() -> bool:
            workspace = await client.get()
            assert workspace.state == workspace_pb2.WORKSPACE_STATE_PROVISIONING
            return "an earlier change" in workspace.state_reason

        try:
            await eventually(waits, within=30, what="it waits for the first change")
        finally:
            released.set()
        workspace = await client.settled()
        assert workspace.state == READY, workspace.state_reason
        assert list((await yard.inspect())["NetworkSettings"]["Networks"]) == ["none"]


def _flag(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value)
