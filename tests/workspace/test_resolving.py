"""Where a stored binding's tools run, judged anew each time (T10)."""

from __future__ import annotations

import pytest
from moorage.common.v1 import binding_pb2, provision_pb2

from services.common.errors import MoorageError
from tests.workspace.instances import Client, Machine, local, running


async def test_a_binding_is_resolved(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MOORAGE_SECRET", "x")
    async with running(machine) as (client, instance):
        for workspace in (await client.make("w1"), await client.adopt(machine.supplied(), "w2")):
            resolved = await client.resolve(local(workspace.root), workspace.workspace_id)
            assert resolved.root == workspace.root
            assert resolved.endpoint == instance.endpoint
            assert resolved.provider == "local"
            assert resolved.network == provision_pb2.NETWORK_POLICY_HOST
            assert resolved.limits == provision_pb2.ResourceLimits()
            assert "PATH" in resolved.environment_names
            assert not [name for name in resolved.environment_names if name.startswith("MOORAGE_")]


@pytest.mark.parametrize(
    "binding",
    [
        binding_pb2.Binding(cloud=binding_pb2.CloudBinding(provider="docker")),
        binding_pb2.Binding(external=binding_pb2.ExternalBinding(worker_pool="pool")),
        binding_pb2.Binding(),
        local("/elsewhere"),
    ],
)
async def test_another_binding_is_not(client: Client, machine: Machine, binding: binding_pb2.Binding) -> None:
    await client.adopt(machine.supplied())
    with pytest.raises(MoorageError) as refused:
        await client.resolve(binding)
    assert refused.value.reason_name == "BINDING_UNRESOLVED"


async def test_a_missing_workspace_comes_first(client: Client) -> None:
    with pytest.raises(MoorageError) as refused:
        await client.resolve(binding_pb2.Binding())
    assert refused.value.reason_name == "WORKSPACE_NOT_FOUND"


async def test_a_workspace_must_be_ready(client: Client) -> None:
    made = await client.make()
    await client.delete()
    with pytest.raises(MoorageError) as refused:
        await client.resolve(local(made.root))
    assert refused.value.reason_name == "WORKSPACE_NOT_READY"
    assert refused.value.metadata["state"] in ("DELETING", "DELETED")


async def test_a_supplied_directory_may_come_back(client: Client, machine: Machine) -> None:
    adopted = await client.adopt(machine.supplied())
    machine.supplied().rmdir()
    with pytest.raises(MoorageError) as refused:
        await client.resolve(local(adopted.root))
    assert refused.value.reason_name == "WORKSPACE_NOT_READY"
    machine.supplied()
    assert (await client.resolve(local(adopted.root))).root == adopted.root


async def test_a_narrower_root_is_respected(machine: Machine) -> None:
    async with running(machine) as (client, _):
        adopted = await client.adopt(machine.supplied())
    async with running(machine, root=machine.supplied("inner")) as (client, _):
        with pytest.raises(MoorageError) as refused:
            await client.resolve(local(adopted.root))
    assert refused.value.reason_name == "WORKSPACE_NOT_READY"
