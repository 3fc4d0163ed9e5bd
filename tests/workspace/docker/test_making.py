"""Containers of workspaces, from the intent to their removal, on a real engine (W1 to W5)."""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path
from typing import Any

import pytest
from moorage.common.v1 import binding_pb2, provision_pb2
from moorage.common.v1.binding_pb2 import Binding, CloudBinding
from moorage.common.v1.provision_pb2 import ProvisionSpec, ResourceLimits, SetupCommand, WorkspaceSource
from moorage.workspace.v1 import workspace_pb2

from services.common import failpoints
from services.common.errors import AlreadyExists, FailedPrecondition, InvalidArgument
from services.workspace.config import WorkspaceSettings
from services.workspace.docker.labels import PREFIX, Labels
from services.workspace.server import build as build_instance
from tests.conditions import eventually
from tests.engines import BUSYBOX
from tests.workspace.docker.yard import DOCKER, MISSING, Yard, make
from tests.workspace.instances import PROJECT, Client, Holder, duration

DELETED = workspace_pb2.WORKSPACE_STATE_DELETED
FAILED = workspace_pb2.WORKSPACE_STATE_FAILED
LOST = workspace_pb2.WORKSPACE_STATE_LOST
READY = workspace_pb2.WORKSPACE_STATE_READY
NONE = provision_pb2.NETWORK_POLICY_NONE
BRIDGE = provision_pb2.NETWORK_POLICY_BRIDGE
HOST = provision_pb2.NETWORK_POLICY_HOST
MEBIBYTE = 1024 * 1024


def _path(directory: str) -> WorkspaceSource:
    return WorkspaceSource(path=provision_pb2.PathSource(directory=directory))


async def test_a_workspace_is_made_used_and_removed(client: Client, yard: Yard, holder: Holder) -> None:
    response = await client.provision(provision=DOCKER)
    assert response.binding == Binding(
        origin=binding_pb2.BINDING_ORIGIN_PROVISIONED,
        cloud=CloudBinding(provider="docker", workspace_ref="w1"),
    )
    workspace = await client.settled()
    assert (workspace.state, workspace.root) == (READY, str(yard.directory()))
    container = await yard.inspect()
    labels = {name: value for name, value in container["Config"]["Labels"].items() if name.startswith(PREFIX)}
    deployment = labels.pop(f"{PREFIX}deployment")
    assert deployment
    assert (
        labels.items()
        >= {
            f"{PREFIX}instance": yard.machine.instance_id,
            f"{PREFIX}project": PROJECT,
            f"{PREFIX}workspace": "w1",
            f"{PREFIX}generation": "1",
        }.items()
    )
    ran = await client.exec(await holder.acquire(), "sh", "-c", "pwd; id -u; id -g; echo hello > made").run()
    assert (ran.stdout.decode().split(), ran.how) == ([workspace.root, "10001", "10001"], ("exit_code", 0))
    assert (yard.directory() / "made").read_text() == "hello\n"
    await client.delete()
    assert (await client.settled()).state == DELETED
    assert not yard.directory().exists()
    assert await yard.containers() == []


async def test_the_spec_is_told_and_applies(client: Client, yard: Yard) -> None:
    limits = ResourceLimits(cpus=0.5, memory_bytes=32 * MEBIBYTE, pids=32)
    workspace = await make(client, limits=limits, ttl=duration(3600))
    assert workspace.spec == ProvisionSpec(
        provider="docker", image=BUSYBOX, network=NONE, limits=limits, ttl=duration(3600)
    )
    resolved = await client.resolve(_binding())
    assert (resolved.provider, resolved.network, resolved.limits) == ("docker", NONE, limits)
    assert set(resolved.environment_names) == {"HOME", "PATH"}
    defaults = (await make(client, "w2")).spec.limits
    assert defaults == ResourceLimits(cpus=1.0, memory_bytes=64 * MEBIBYTE, pids=64)


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"image": "busybox"}, "provision.image"),
        ({"network": HOST}, "provision.network"),
        ({"setup": SetupCommand(command=["true"], network=HOST)}, "provision.setup.network"),
        ({"limits": ResourceLimits(cpus=1.5)}, "provision.limits.cpus"),
        ({"limits": ResourceLimits(cpus=0)}, "provision.limits.cpus"),
        ({"limits": ResourceLimits(cpus=float("nan"))}, "provision.limits.cpus"),
        ({"limits": ResourceLimits(memory_bytes=65 * MEBIBYTE)}, "provision.limits.memory_bytes"),
        ({"limits": ResourceLimits(memory_bytes=-1)}, "provision.limits.memory_bytes"),
        ({"limits": ResourceLimits(pids=65)}, "provision.limits.pids"),
        ({"limits": ResourceLimits(pids=0)}, "provision.limits.pids"),
        ({"source": _path("/")}, "provision.source.path.directory"),
    ],
)
async def test_what_cannot_be_had_is_refused_by_name(
    client: Client, spec: dict[str, Any], field: str
) -> None:
    with pytest.raises(InvalidArgument) as refused:
        await client.provision(provision=ProvisionSpec(provider="docker", **spec))
    assert [violation.field for violation in refused.value.violations] == [field]


@pytest.mark.parametrize(
    ("spec", "told"),
    [
        (
            {"image": "somebody/else"},
            f"'somebody/else' is none of those allowed: {BUSYBOX}, moorage-test:missing",
        ),
        ({"limits": ResourceLimits(memory_bytes=65 * MEBIBYTE)}, "must be from 16 MiB to 64 MiB, not 65 MiB"),
        ({"limits": ResourceLimits(cpus=1.5)}, "must be from 0.01 to 1, not 1.5"),
        ({"limits": ResourceLimits(pids=65)}, "must be from 8 to 64, not 65"),
    ],
)
async def test_a_refusal_says_what_was_asked_for_and_what_can_be_had(
    client: Client, spec: dict[str, Any], told: str
) -> None:
    with pytest.raises(InvalidArgument) as refused:
        await client.provision(provision=ProvisionSpec(provider="docker", **spec))
    assert [violation.description for violation in refused.value.violations] == [told]


@pytest.mark.parametrize("what", ["state directory", "above it", "in it", "socket", "homes", "all"])
async def test_what_no_container_may_have_is_no_source(what: str, yard: Yard) -> None:
    """Whoever has it has the directories of all projects, or the machine."""
    machine = yard.machine
    async with yard.running(root="/") as (client, _):
        await make(client)
        directory = {
            "state directory": machine.state,
            "above it": machine.directory,
            "in it": machine.state / PROJECT,
            "socket": Path(yard.address.removeprefix("unix://")).resolve().parent,
            "homes": Path("/home"),
            "all": Path("/"),
        }[what]
        with pytest.raises(InvalidArgument) as refused:
            await make(client, "w2", source=_path(str(directory)))
        assert [each.field for each in refused.value.violations] == ["provision.source.path.directory"]


async def test_without_a_root_that_was_named_there_are_no_sources(yard: Yard) -> None:
    """The engine need not see the directory that the instance was started in."""
    settings = yard.machine.settings(**yard.settings)
    unnamed = WorkspaceSettings(**settings.model_dump(exclude={"root"}, exclude_unset=True))
    async with build_instance(unnamed).running() as endpoint, Client.at(endpoint).channel as channel:
        with pytest.raises(InvalidArgument, match="no --root"):
            await make(Client(channel), source=_path(str(Path.cwd())))


async def test_a_source_that_is_gone_when_it_is_made_fails_at_once(
    yard: Yard, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    monkeypatch.setitem(failpoints._active, "workspace.docker.before_create", f"pause:{gate}")
    supplied = yard.machine.supplied()
    async with yard.running() as (client, _):
        await client.provision(provision=ProvisionSpec(provider="docker", source=_path(str(supplied))))
        await eventually(Path(f"{gate}.reached").exists, within=30)
        supplied.rmdir()
        gate.touch()
        workspace = await client.settled()
        assert workspace.state == FAILED
        assert str(supplied) in workspace.state_reason
        assert await yard.containers() == []


async def test_no_network_can_be_asked_for_where_there_is_none(yard: Yard) -> None:
    async with yard.running(docker_bridge_network="") as (client, _):
        with pytest.raises(InvalidArgument) as refused:
            await make(client, network=BRIDGE)
        assert [violation.field for violation in refused.value.violations] == ["provision.network"]


async def test_without_an_image_there_is_nothing_to_make(yard: Yard) -> None:
    for changes in ({"docker_images": ()}, {"docker_enabled": False}):
        async with yard.running(**changes) as (client, _):
            with pytest.raises(FailedPrecondition) as refused:
                await client.provision(provision=DOCKER)
            assert refused.value.reason_name == "PROVIDER_UNAVAILABLE"


async def test_the_provider_says_what_can_be_had(client: Client) -> None:
    providers = (await client.stub.ListProviders(workspace_pb2.ListProvidersRequest())).providers
    (docker,) = [each for each in providers if each.name == "docker"]
    assert list(docker.engine.missing_images) == [MISSING]
    docker.ClearField("engine")
    assert docker == workspace_pb2.Provider(
        name="docker",
        enabled=True,
        images=[BUSYBOX, MISSING],
        limits=ResourceLimits(cpus=1.0, memory_bytes=64 * MEBIBYTE, pids=64),
    )


async def test_an_image_that_is_not_there_fails_at_once(client: Client, yard: Yard) -> None:
    workspace = await make(client, image=MISSING)
    assert workspace.state == FAILED
    assert MISSING in workspace.state_reason
    assert await yard.containers() == []


async def test_a_name_that_somebody_else_has_is_refused(client: Client, yard: Yard) -> None:
    await make(client)
    labels = (await yard.inspect())["Config"]["Labels"]
    name = (await yard.inspect())["Name"].lstrip("/")
    await client.delete()
    await client.settled()
    # The name follows from who it is for, so the next one can be told.
    other = _named(labels, workspace="w2").name
    assert _named(labels, workspace="w1").name == name
    stranger = await yard.ask("create_container", BUSYBOX, "true", name=other)
    try:
        workspace = await make(client, "w2")
        assert workspace.state == FAILED
        assert "not ours" in workspace.state_reason
        assert (await yard.ask("inspect_container", stranger["Id"]))["Name"] == f"/{other}"
        await client.delete("w2")
        assert (await client.settled("w2")).state == DELETED
        # What is not ours stays, also when the workspace goes.
        assert await yard.ask("inspect_container", stranger["Id"])
    finally:
        await yard.ask("remove_container", stranger["Id"], force=True)


async def test_our_own_container_of_an_earlier_try_is_adopted(client: Client, yard: Yard) -> None:
    await make(client)
    labels = (await yard.inspect())["Config"]["Labels"]
    earlier = _named(labels, workspace="w2")
    root = yard.directory("w2")
    root.mkdir()
    os.chown(root, 10001, 10001)
    made = await _place_container(yard, earlier, root)
    root.rmdir()
    assert (await make(client, "w2")).state == READY
    assert (await yard.inspect("w2"))["Id"] == made


async def test_our_own_container_that_runs_in_a_former_directory_is_not_used(
    client: Client, yard: Yard
) -> None:
    """Not by what is on this machine now: it was mounted before that."""
    await make(client)
    earlier = _named((await yard.inspect())["Config"]["Labels"], workspace="w2")
    root = yard.directory("w2")
    root.mkdir()
    await yard.ask("start", await _place_container(yard, earlier, root))
    root.rename(root.with_name("former"))
    workspace = await make(client, "w2")
    assert workspace.state == FAILED
    assert "another directory" in workspace.state_reason
    assert await yard.containers("w2") == []


@pytest.mark.parametrize("has_label", [False, True], ids=["foreign", "ours"])
async def test_a_home_that_is_a_link_is_refused(
    client: Client, yard: Yard, tmp_path: Path, *, has_label: bool
) -> None:
    await make(client)
    (tmp_path / "victim").mkdir(mode=0o700)
    yard.directory("w2.home").symlink_to(tmp_path / "victim")
    if has_label:
        said = json.loads(yard.directory("w1.json").read_bytes())
        yard.directory("w2.json").write_text(json.dumps({**said, "workspace_id": "w2"}))
    workspace = await make(client, "w2")
    assert workspace.state == FAILED
    assert "w2.home" in workspace.state_reason
    assert (tmp_path / "victim").stat().st_uid == os.geteuid()
    assert await yard.containers("w2") == []


async def _place_container(yard: Yard, labels: Labels, root: Path) -> str:
    """One as an earlier try would have made it; its id."""
    binds = [f"{root}:{root}", f"{yard.helper}:/.moorage:ro"]
    made = await yard.ask(
        "create_container",
        BUSYBOX,
        ["init"],
        entrypoint="/.moorage/exec",
        name=labels.name,
        labels=labels.to_engine(),
        user="10001:10001",
        host_config=await yard.ask("create_host_config", binds=binds, network_mode="none"),
    )
    return str(made["Id"])


async def test_a_container_that_was_removed_behind_our_back_is_lost(
    client: Client, yard: Yard, holder: Holder
) -> None:
    await make(client)
    (yard.directory() / "work").write_text("kept")
    await yard.ask("remove_container", (await yard.inspect())["Id"], force=True)
    refused = await client.exec(await holder.acquire(), "true").refusal()
    assert refused.reason_name == "WORKSPACE_NOT_READY"
    assert (await client.get()).state == LOST
    assert (yard.directory() / "work").read_text() == "kept"
    await client.delete()
    assert (await client.settled()).state == DELETED
    assert not yard.directory().exists()


async def test_a_container_that_was_stopped_is_started_again(
    client: Client, yard: Yard, holder: Holder
) -> None:
    await make(client)
    container = (await yard.inspect())["Id"]
    await yard.ask("kill", container)
    await eventually(lambda: _stopped(yard), what="it is stopped")
    ran = await client.exec(await holder.acquire(), "echo", "again").run()
    assert ran.stdout == b"again\n"
    assert (await yard.inspect())["Id"] == container


async def test_removal_works_when_provisioning_is_disabled(yard: Yard) -> None:
    async with yard.running() as (client, _):
        await make(client)
    assert len(await yard.containers()) == 1
    for changes in ({"docker_enabled": False}, {"docker_images": ()}):
        async with yard.running(**changes) as (client, _):
            await client.delete()
            assert (await client.settled()).state == DELETED
            assert await yard.containers() == []
            assert not yard.directory().exists()


async def test_a_directory_that_is_a_source_is_mounted_and_never_removed(
    client: Client, yard: Yard, holder: Holder
) -> None:
    supplied = yard.machine.supplied()
    os.chown(supplied, 12345, 12345)
    (supplied / "theirs").write_text("theirs")
    workspace = await make(client, source=_path(str(supplied)))
    assert (workspace.state, workspace.root) == (READY, str(supplied))
    ran = await client.exec(await holder.acquire(), "sh", "-c", "id -u; cat theirs; touch made").run()
    assert ran.stdout == b"12345\ntheirs"
    await client.delete()
    assert (await client.settled()).state == DELETED
    assert {path.name for path in supplied.iterdir()} == {"theirs", "made"}
    assert await yard.containers() == []


async def test_a_repeated_call_makes_one_container(client: Client, yard: Yard) -> None:
    await client.provision(provision=DOCKER)
    await client.provision(provision=DOCKER)
    await client.settled()
    with pytest.raises(AlreadyExists):
        await client.provision(provision=ProvisionSpec(provider="docker", network=BRIDGE))
    assert len(await yard.containers()) == 1


def _named(labels: dict[str, str], *, workspace: str) -> Labels:
    """Those of the first container of another workspace beside one."""
    return Labels(labels[f"{PREFIX}deployment"], labels[f"{PREFIX}instance"], PROJECT, workspace, 1)


def _binding() -> Binding:
    return Binding(
        origin=binding_pb2.BINDING_ORIGIN_PROVISIONED,
        cloud=CloudBinding(provider="docker", workspace_ref="w1"),
    )


async def _stopped(yard: Yard) -> bool:
    return not (await yard.inspect())["State"]["Running"]


async def test_a_directory_above_which_the_image_is_closed_is_none_to_work_in(yard: Yard) -> None:
    with tempfile.TemporaryDirectory(dir="/root") as root:
        mine = Path(root, "mine")
        mine.mkdir()
        mine.chmod(0o777)
        changes = {"root": Path(root), "default_directory": None, "docker_images": ("moorage-test:demo",)}
        async with yard.running(**changes) as (client, _):
            workspace = await make(client, source=_path(str(mine)))
            assert workspace.state == FAILED
            assert "the image closes what is above it" in workspace.state_reason
            await client.delete()
            assert (await client.settled()).state == DELETED
