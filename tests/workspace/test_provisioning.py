"""Workspaces come to be: intents first, states guarded, paths confined (W1, W2, W7, W8)."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import asyncpg
import pytest
from moorage.common.v1 import binding_pb2, provision_pb2
from moorage.workspace.v1 import workspace_pb2

from services.common.errors import MoorageError
from tests.conditions import eventually
from tests.workspace.instances import Client, Machine, local, running

LOCAL = provision_pb2.ProvisionSpec(provider="local")


async def test_a_provisioned_directory_is_made(client: Client, machine: Machine) -> None:
    response = await client.provision(provision=provision_pb2.ProvisionSpec())
    root = machine.state / "default" / "w1"
    assert response.workspace.state in (
        workspace_pb2.WORKSPACE_STATE_PROVISIONING,
        workspace_pb2.WORKSPACE_STATE_READY,
    )
    assert response.workspace.root == str(root)
    assert response.binding == binding_pb2.Binding(
        origin=binding_pb2.BINDING_ORIGIN_PROVISIONED, local=binding_pb2.LocalBinding(directory=str(root))
    )
    ready = await client.settled()
    assert ready.state == workspace_pb2.WORKSPACE_STATE_READY
    assert (ready.session_id, ready.provider, ready.instance_id) == ("s1", "local", machine.instance_id)
    assert ready.endpoint
    assert root.is_dir()
    assert not any(root.iterdir())
    assert root.stat().st_mode & 0o777 == 0o700


async def test_it_is_labelled(client: Client, machine: Machine) -> None:
    await client.make()
    label = json.loads((machine.state / "default" / "w1.json").read_text())
    assert label.pop("deployment")
    assert label == {"project": "default", "workspace_id": "w1", "instance_id": machine.instance_id}


async def test_a_supplied_directory_is_ready_at_once(client: Client, machine: Machine) -> None:
    directory = machine.supplied()
    response = await client.provision(binding=local(directory))
    assert response.workspace.state == workspace_pb2.WORKSPACE_STATE_READY
    assert response.binding == binding_pb2.Binding(
        origin=binding_pb2.BINDING_ORIGIN_SUPPLIED, local=binding_pb2.LocalBinding(directory=str(directory))
    )


async def test_links_in_a_supplied_path_are_resolved(client: Client, machine: Machine) -> None:
    (machine.root / "link").symlink_to(machine.supplied())
    assert (await client.adopt(machine.root / "link")).root == str(machine.supplied())


async def test_without_a_source_the_default_directory_is_used(
    machine: Machine, caplog: pytest.LogCaptureFixture
) -> None:
    default = machine.supplied("default")
    async with running(machine, default_directory=default) as (client, _):
        response = await client.provision()
    assert response.workspace.root == str(default)
    assert response.workspace.origin == binding_pb2.BINDING_ORIGIN_SUPPLIED
    warned = [r for r in caplog.records if "default one" in r.getMessage() or "default one" in str(r.msg)]
    assert [record.levelname for record in warned] == ["WARNING"]


async def test_without_a_default_directory_a_source_is_required(client: Client) -> None:
    with pytest.raises(MoorageError) as refused:
        await client.provision()
    assert refused.value.reason_name == "BINDING_REQUIRED"
    assert refused.value.violations[0].field == "source"


async def test_a_repeated_call_finds_the_workspace(client: Client, machine: Machine) -> None:
    for workspace_id, source in (
        ("w1", {"provision": LOCAL}),
        ("w2", {"binding": local(machine.supplied())}),
    ):
        first = await client.provision(workspace_id, **source)
        await client.settled(workspace_id)
        again = await client.provision(workspace_id, **source)
        assert again.binding == first.binding
        assert again.workspace.create_time == first.workspace.create_time
        assert again.workspace.state == workspace_pb2.WORKSPACE_STATE_READY


async def test_a_repeated_call_finds_a_directory_that_is_gone(client: Client, machine: Machine) -> None:
    await client.adopt(machine.supplied())
    machine.supplied().rmdir()
    assert (await client.provision(binding=local(machine.root / "code"))).workspace.root


async def test_at_the_same_time_one_is_stored(client: Client) -> None:
    responses = await asyncio.gather(*(client.provision(provision=LOCAL) for _ in range(20)))
    assert len({str(response.workspace.create_time) for response in responses}) == 1


@pytest.mark.parametrize("change", ["session", "source", "directory"])
async def test_other_content_under_the_same_id_is_refused(
    client: Client, machine: Machine, change: str
) -> None:
    await client.adopt(machine.supplied())
    changes: dict[str, dict[str, Any]] = {
        "session": {"binding": local(machine.supplied()), "session_id": "s2"},
        "source": {"provision": LOCAL},
        "directory": {"binding": local(machine.supplied("other"))},
    }
    with pytest.raises(MoorageError) as refused:
        await client.provision(**changes[change])
    assert refused.value.reason_name == "WORKSPACE_ALREADY_EXISTS"


async def test_projects_do_not_see_each_other(client: Client, machine: Machine) -> None:
    await client.make()
    other = await client.make(project="other")
    assert other.root == str(machine.state / "other" / "w1")
    with pytest.raises(MoorageError) as refused:
        await client.get(project="third")
    assert refused.value.reason_name == "WORKSPACE_NOT_FOUND"
    assert [each.project for each in (await client.list_page("other")).workspaces] == ["other"]


@pytest.mark.parametrize(
    ("kind", "binding"),
    [
        ("cloud", binding_pb2.Binding(cloud=binding_pb2.CloudBinding(provider="docker"))),
        ("external", binding_pb2.Binding(external=binding_pb2.ExternalBinding(worker_pool="pool"))),
        ("unknown", binding_pb2.Binding()),
    ],
)
async def test_other_bindings_are_not_resolved(
    client: Client, kind: str, binding: binding_pb2.Binding
) -> None:
    with pytest.raises(MoorageError) as refused:
        await client.provision(binding=binding)
    assert refused.value.reason_name == "BINDING_UNRESOLVED"
    assert refused.value.metadata["kind"] == kind
    with pytest.raises(MoorageError) as missing:
        await client.get()
    assert missing.value.reason_name == "WORKSPACE_NOT_FOUND"


async def test_an_unknown_provider(client: Client) -> None:
    with pytest.raises(MoorageError) as refused:
        await client.provision(provision=provision_pb2.ProvisionSpec(provider="moon"))
    assert refused.value.reason_name == "PROVIDER_UNAVAILABLE"
    assert refused.value.metadata["provider"] == "moon"


async def test_provisioning_can_be_disabled(machine: Machine) -> None:
    async with running(machine, provision_enabled=False) as (client, _):
        with pytest.raises(MoorageError) as refused:
            await client.provision(provision=LOCAL)
        assert refused.value.reason_name == "PROVIDER_UNAVAILABLE"
        assert (await client.adopt(machine.supplied())).root == str(machine.supplied())
        listed = (await client.stub.ListProviders(workspace_pb2.ListProvidersRequest())).providers
        assert {each.name: each.enabled for each in listed} == {"docker": False, "local": False}


async def test_providers_are_listed(client: Client, machine: Machine) -> None:
    docker, local_one = (await client.stub.ListProviders(workspace_pb2.ListProvidersRequest())).providers
    assert local_one == workspace_pb2.Provider(name="local", enabled=True, root=str(machine.root))
    assert (docker.name, docker.enabled) == ("docker", False)
    assert docker.unavailable_cause == "the instance allows no image"


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("", "INVALID_FIELD"),
        ("root/code", "INVALID_FIELD"),
        ("{machine}/root/missing", "INVALID_FIELD"),
        ("{machine}/root/file", "INVALID_FIELD"),
        ("{machine}/root/a\0b", "INVALID_FIELD"),
        ("{machine}/root/loop", "INVALID_FIELD"),
        pytest.param("{machine}/root/" + "a" * 256, "INVALID_FIELD", id="too long a name"),
        pytest.param("{machine}/root" + "/a" * 3000, "INVALID_FIELD", id="too long a path"),
        ("{machine}/outside", "PATH_OUTSIDE_ROOT"),
        ("{machine}", "PATH_OUTSIDE_ROOT"),
        ("{machine}/root/../outside", "PATH_OUTSIDE_ROOT"),
        ("{machine}/root/escape", "PATH_OUTSIDE_ROOT"),
        ("{machine}/root/escape/..", "PATH_OUTSIDE_ROOT"),
        ("{machine}/rootless", "PATH_OUTSIDE_ROOT"),
        ("{machine}/no/such/outside", "PATH_OUTSIDE_ROOT"),
        ("/", "PATH_OUTSIDE_ROOT"),
    ],
)
async def test_a_supplied_path_must_be_a_directory_inside_the_root(
    client: Client, machine: Machine, path: str, reason: str
) -> None:
    for name in ("outside", "rootless"):
        (machine.directory / name).mkdir()
    (machine.root / "file").touch()
    (machine.root / "escape").symlink_to(machine.directory / "outside")
    (machine.root / "loop").symlink_to(machine.root / "loop")
    with pytest.raises(MoorageError) as refused:
        await client.provision(binding=local(path.format(machine=machine.directory)))
    assert refused.value.reason_name == reason
    assert [violation.field for violation in refused.value.violations] == ["binding.local.directory"]


async def test_a_provisioned_directory_cannot_be_supplied(machine: Machine) -> None:
    async with running(machine, root=machine.directory) as (client, _):
        made = await client.make()
        with pytest.raises(MoorageError) as refused:
            await client.adopt(Path(made.root), "w2")
        assert refused.value.reason_name == "INVALID_FIELD"


async def test_a_supplied_binding_is_not_called_provisioned(client: Client, machine: Machine) -> None:
    binding = local(machine.supplied())
    binding.origin = binding_pb2.BINDING_ORIGIN_PROVISIONED
    with pytest.raises(MoorageError) as refused:
        await client.provision(binding=binding)
    assert refused.value.violations[0].field == "binding.origin"


@pytest.mark.parametrize(
    ("names", "field"),
    [
        ({"workspace_id": ""}, "workspace_id"),
        ({"workspace_id": "a/b"}, "workspace_id"),
        ({"workspace_id": "a.json"}, "workspace_id"),
        ({"workspace_id": "x" * 129}, "workspace_id"),
        ({"session_id": ""}, "session_id"),
        ({"project": "Upper"}, "project"),
        ({"project": ""}, "project"),
        ({"project": ".."}, "project"),
    ],
)
async def test_bad_names(client: Client, names: dict[str, str], field: str) -> None:
    with pytest.raises(MoorageError) as refused:
        await client.provision(**names, provision=LOCAL)
    assert refused.value.violations[0].field == field


async def test_pages(client: Client, machine: Machine) -> None:
    for number in range(5):
        await client.adopt(machine.supplied(), f"w{number}")
    await client.delete("w3")
    await client.settled("w3")
    first = await client.list_page(page_size=3)
    assert [each.workspace_id for each in first.workspaces] == ["w0", "w1", "w2"]
    second = await client.list_page(page_size=3, page_token=first.next_page_token)
    assert [each.workspace_id for each in second.workspaces] == ["w4"]
    assert not second.next_page_token
    with pytest.raises(MoorageError) as refused:
        await client.list_page(page_token="made up")
    assert refused.value.violations[0].field == "page_token"


async def test_what_fails_for_a_while_is_tried_again(client: Client, machine: Machine) -> None:
    machine.state.mkdir()
    obstacle = machine.state / "default"
    obstacle.touch()
    await client.provision(provision=LOCAL)

    async def says_why() -> bool:
        found = await client.get()
        return found.state == workspace_pb2.WORKSPACE_STATE_PROVISIONING and "default" in found.state_reason

    await eventually(says_why)
    obstacle.unlink()
    ready = await client.settled()
    assert (ready.state, ready.state_reason) == (workspace_pb2.WORKSPACE_STATE_READY, "")


async def test_what_is_not_made_in_time_fails(machine: Machine) -> None:
    machine.state.mkdir()
    (machine.state / "default").touch()
    async with running(machine, provision_timeout=0.5) as (client, _):
        await client.provision(provision=LOCAL)
        failed = await client.settled()
        assert failed.state == workspace_pb2.WORKSPACE_STATE_FAILED
        assert failed.state_reason.startswith("not made in time: ")
        await client.delete()
        assert (await client.get()).state == workspace_pb2.WORKSPACE_STATE_DELETING
        (machine.state / "default").unlink()
        assert (await client.settled()).state == workspace_pb2.WORKSPACE_STATE_DELETED


async def test_what_is_there_already_is_not_taken_over(client: Client, machine: Machine) -> None:
    foreign = machine.state / "default" / "w1"
    foreign.mkdir(parents=True)
    (foreign / "precious").touch()
    await client.provision(provision=LOCAL)
    failed = await client.settled()
    assert failed.state == workspace_pb2.WORKSPACE_STATE_FAILED
    assert "exists" in failed.state_reason
    await client.delete()
    assert (await client.settled()).state == workspace_pb2.WORKSPACE_STATE_DELETED
    assert (foreign / "precious").exists()


async def test_waiting_ends_shortly_before_the_deadline(client: Client, machine: Machine) -> None:
    machine.state.mkdir()
    (machine.state / "default").touch()
    await client.provision(provision=LOCAL)
    found = await client.get(wait=True, timeout=0.5)
    assert found.state == workspace_pb2.WORKSPACE_STATE_PROVISIONING


async def test_the_intent_is_stored_before_anything_is_made(
    machine: Machine, client: Client, database_url: str
) -> None:
    connection = await asyncpg.connect(database_url)
    try:
        async with connection.transaction():
            await connection.execute("LOCK TABLE workspace.workspaces IN SHARE MODE")
            asking = asyncio.create_task(client.provision(provision=LOCAL))
            await eventually(lambda: _waits(database_url))
            assert not (machine.state / "default").exists()
        await asking
    finally:
        await connection.close()
    assert (await client.settled()).state == workspace_pb2.WORKSPACE_STATE_READY


async def _waits(database_url: str) -> bool:
    connection = await asyncpg.connect(database_url)
    try:
        return bool(
            await connection.fetchval(
                "SELECT count(*) FROM pg_locks WHERE NOT granted AND relation = 'workspace.workspaces'::regclass"
            )
        )
    finally:
        await connection.close()
