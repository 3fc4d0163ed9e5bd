"""deploy/compose.yaml as it is, on a real engine: what it grants, the main job, crashes, drains, the end."""

from __future__ import annotations

import asyncio
import secrets
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from moorage.common.v1 import provision_pb2, turn_pb2

from tests.conditions import eventually
from tests.deploy.deployment import PATIENCE, UID, Deployment, output_of
from tests.runner.talks import Talks

pytestmark = pytest.mark.timeout(300)

DOCKER = provision_pb2.ProvisionSpec(provider="docker")
SOCKET = "/var/run/docker.sock"
SESSIONS = {"session-a", "session-b"}


async def made(talks: Talks, **fields: Any) -> str:
    """A new session in a container of its own, ready."""
    session_id = f"s-{secrets.token_hex(6)}"
    await talks.create(session_id, provision=DOCKER, wait_ready=True, **fields)
    return session_id


async def holder_of(talks: Talks, session_id: str) -> str:
    """The runner that drives it."""
    return (await talks.session(session_id)).lease.holder.partition("/")[0]


def test_nothing_has_more_rights_than_it_needs(deployment: Deployment) -> None:
    containers = deployment.containers()
    migrate = containers.pop("migrate")
    assert migrate["State"]["ExitCode"] == 0
    assert {one["State"]["Health"]["Status"] for one in containers.values()} == {"healthy"}
    for service, one in {**containers, "migrate": migrate}.items():
        host = one["HostConfig"]
        assert one["Config"]["User"] in ({"postgres"} if service == "database" else {f"{UID}:{UID}"})
        assert host["ReadonlyRootfs"]
        assert host["CapDrop"] == ["ALL"]
        assert not host["CapAdd"]
        assert not host["Privileged"]
        assert "no-new-privileges:true" in host["SecurityOpt"]
    assert [name for name, one in containers.items() if SOCKET in targets_of(one)] == ["workspace"]


def test_only_clients_are_let_in_and_only_from_this_machine(deployment: Deployment) -> None:
    published = {name: one["NetworkSettings"]["Ports"] for name, one in deployment.containers().items()}
    open_ports = {name: ports for name, ports in published.items() if any(ports.values())}
    assert set(open_ports) == SESSIONS
    for ports in open_ports.values():
        bound = {port: [to["HostIp"] for to in where] for port, where in ports.items() if where}
        assert bound == {"7801/tcp": ["127.0.0.1"]}


def targets_of(container: dict[str, Any]) -> set[str]:
    """Where something of the host is mounted."""
    return {mount["Destination"] for mount in container["Mounts"]}


def test_the_demo_runs_against_it(deployment: Deployment) -> None:
    address = deployment.address("session-b")
    command = [sys.executable, "-m", "services.cli", "demo", "--on", address, "--provider", "docker"]
    shown = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)
    assert (shown.returncode, shown.stderr) == (0, "")
    assert shown.stdout.splitlines()[-1].startswith("✓ close")


async def test_a_session_has_a_container_of_its_own_until_it_is_closed(
    deployment: Deployment, talks: Talks
) -> None:
    session_id = await made(talks, secret_refs={"TOKEN": "token"})
    workspace_id = (await talks.session(session_id)).workspace.workspace_id
    [container] = containers_of(workspace_id)
    assert SOCKET not in output_of("docker", "inspect", container)
    assert output_of("docker", "exec", container, "id", "-u").strip() == str(UID)
    await talks.run(session_id, "t1", "run pwd > where; id -u > who; echo $TOKEN > told")
    [where] = deployment.state.glob(f"*/{workspace_id}/where")
    assert Path(where.read_text().strip()) == where.parent
    assert (where.parent / "who").read_text() == f"{UID}\n"
    assert (where.parent / "told").read_text() == "a secret\n"
    await talks.close(session_id)
    assert containers_of(workspace_id) == []
    assert not where.parent.exists()


def containers_of(workspace_id: str) -> list[str]:
    """The engine's ids of a workspace's containers."""
    label = f"label=io.moorage.workspace={workspace_id}"
    return output_of("docker", "ps", "--all", "--quiet", "--filter", label).split()


async def test_a_turn_goes_on_while_both_session_services_crash_one_after_the_other(
    deployment: Deployment, either: Talks
) -> None:
    session_id = await made(either)
    await either.start(session_id, "t1", "count to 100000 every 0.05")
    for service in ("session-b", "session-a"):
        await counts_on(either, session_id)
        await deployment.crash(service)
        await deployment.healthy(service)
    await counts_on(either, session_id)
    await either.stop(session_id, "t1")
    ended = await either.ended(session_id, "t1", within=PATIENCE)
    assert ended.state == turn_pb2.TURN_STATE_STOPPED
    counted = (await either.said(session_id, "t1")).split()
    assert counted == [str(number) for number in range(1, len(counted) + 1)]
    await either.close(session_id)


async def counts_on(talks: Talks, session_id: str) -> None:
    """The turn's answer becomes longer."""
    counted = len(await talks.said(session_id, "t1"))

    async def is_longer() -> bool:
        return len(await talks.said(session_id, "t1")) > counted + 20

    await eventually(is_longer, within=PATIENCE, what="the agent counts on")


async def test_a_runner_that_crashes_loses_its_turn_and_the_next_one_runs(
    deployment: Deployment, talks: Talks
) -> None:
    session_id = await made(talks)
    await talks.start(session_id, "t1", "count to 100000 every 0.05")
    await talks.says(session_id, "t1", "3")
    await deployment.crash(await holder_of(talks, session_id))
    lost = await talks.ended(session_id, "t1", within=PATIENCE)
    assert (lost.state, lost.end_reason) == (turn_pb2.TURN_STATE_LOST, turn_pb2.END_REASON_LEASE_LOST)
    following = await talks.run(session_id, "t2", "say here again")
    assert following.state == turn_pb2.TURN_STATE_COMPLETED
    assert "here again" in await talks.said(session_id, "t2")
    await talks.close(session_id)


async def test_a_workspace_service_that_crashes_leaves_its_containers_and_directories(
    deployment: Deployment, talks: Talks
) -> None:
    session_id = await made(talks)
    await talks.run(session_id, "t1", "run echo kept > file")
    [container] = containers_of((await talks.session(session_id)).workspace.workspace_id)
    await talks.start(session_id, "t2", "count to 100000 every 0.05")
    await talks.says(session_id, "t2", "3")
    await deployment.crash("workspace")
    failed = await talks.ended(session_id, "t2", within=PATIENCE)
    assert failed.state == turn_pb2.TURN_STATE_FAILED
    await deployment.healthy("workspace")
    following = await talks.run(session_id, "t3", "run cat file")
    assert following.state == turn_pb2.TURN_STATE_COMPLETED
    assert containers_of((await talks.session(session_id)).workspace.workspace_id) == [container]
    # The agent of before is dead, the one of now is warm.
    assert output_of("docker", "top", container).count("/opt/moorage/demo") == 1
    await talks.close(session_id)


async def test_a_runner_that_is_stopped_ends_its_turn_first(deployment: Deployment, talks: Talks) -> None:
    session_id = await made(talks)
    await talks.start(session_id, "t1", "count to 60 every 0.05")
    await talks.says(session_id, "t1", "3")
    runner = await holder_of(talks, session_id)
    await asyncio.to_thread(deployment.compose, "stop", runner)
    assert (await talks.turn(session_id, "t1")).state == turn_pb2.TURN_STATE_COMPLETED
    assert deployment.containers()[runner]["State"]["ExitCode"] == 0
    await talks.run(session_id, "t2", "say elsewhere")
    assert await holder_of(talks, session_id) not in ("", runner)
    await talks.close(session_id)


async def test_it_is_stopped_in_order_and_nothing_is_left(deployment: Deployment) -> None:
    await asyncio.to_thread(deployment.compose, "stop")
    codes = {name: one["State"]["ExitCode"] for name, one in deployment.containers().items()}
    assert codes == dict.fromkeys(codes, 0)
    assert len(codes) == 8
    await asyncio.to_thread(deployment.compose, "down", "--volumes")
    assert deployment.leftovers() == ""
    # But the helper, which belongs to the instance and to no session.
    left = [path for path in deployment.state.rglob("*") if not path.is_dir()]
    assert [path.parts[-3:] for path in left] == [(".helper", "one", "exec")]
