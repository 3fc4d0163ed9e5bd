"""What can be asked for, and what of it is stored and told (W1); how many a project may have (W9)."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from moorage.common.v1 import provision_pb2
from moorage.common.v1.provision_pb2 import ProvisionSpec, ResourceLimits, SetupCommand, WorkspaceSource

from services.common.errors import AlreadyExists, InvalidArgument, ResourceExhausted
from tests.workspace.instances import Client, Machine, duration, local, running

NONE = provision_pb2.NETWORK_POLICY_NONE
HOST = provision_pb2.NETWORK_POLICY_HOST


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"image": "any"}, "provision.image"),
        ({"image": "x" * 513}, "provision.image"),
        ({"image": "a\0"}, "provision.image"),
        ({"network": NONE}, "provision.network"),
        ({"network": 99}, "provision.network"),
        ({"limits": ResourceLimits(pids=5)}, "provision.limits"),
        ({"ttl": duration(0)}, "provision.ttl"),
        ({"ttl": duration(-1)}, "provision.ttl"),
        ({"idle_ttl": duration(0)}, "provision.idle_ttl"),
        ({"idle_ttl": duration(1e10)}, "provision.idle_ttl"),
        ({"source": WorkspaceSource(path=provision_pb2.PathSource(directory="/x"))}, "provision.source.path"),
        ({"setup": SetupCommand(command=["true"], network=NONE)}, "provision.setup.network"),
    ],
)
async def test_what_local_cannot_give_is_refused_by_name(
    client: Client, spec: dict[str, Any], field: str
) -> None:
    with pytest.raises(InvalidArgument) as refused:
        await client.provision(provision=ProvisionSpec(**spec))
    assert [violation.field for violation in refused.value.violations] == [field]


async def test_the_spec_is_told_with_defaults_filled_in(client: Client, machine: Machine) -> None:
    asked = ProvisionSpec(ttl=duration(3600), idle_ttl=duration(60.5))
    workspace = (await client.provision(provision=asked)).workspace
    assert workspace.spec == ProvisionSpec(
        provider="local", network=HOST, limits=ResourceLimits(), ttl=duration(3600), idle_ttl=duration(60.5)
    )
    assert (await client.settled()).spec == workspace.spec
    adopted = await client.adopt(machine.supplied(), "w2")
    assert not adopted.HasField("spec")


async def test_a_repeated_call_must_ask_for_the_same(client: Client) -> None:
    await client.provision(provision=ProvisionSpec(ttl=duration(60)))
    await client.provision(provision=ProvisionSpec(ttl=duration(60), provider="local"))
    for other in (
        ProvisionSpec(),
        ProvisionSpec(ttl=duration(61)),
        ProvisionSpec(ttl=duration(60), network=HOST),
    ):
        with pytest.raises(AlreadyExists):
            await client.provision(provision=other)


async def test_a_project_gets_no_more_than_its_quota_however_many_ask_at_once(machine: Machine) -> None:
    async with running(machine, project_quota=3) as (client, _):
        answers = await asyncio.gather(*(_made(client, f"w{number}") for number in range(12)))
        assert sorted(answers) == [False] * 9 + [True] * 3
        assert await _made(client, "w0", project="another")
        # What is supplied costs nothing, and what is stored already is not counted again.
        await client.adopt(machine.supplied(), "supplied")
        made = f"w{answers.index(True)}"
        assert await _made(client, made)


async def test_the_wish_to_delete_frees_the_quota(machine: Machine) -> None:
    async with running(machine, project_quota=1) as (client, _):
        await client.make("w1")
        with pytest.raises(ResourceExhausted) as refused:
            await client.make("w2")
        assert refused.value.reason_name == "QUOTA_EXCEEDED"
        assert refused.value.metadata == {"project": "default", "quota": "1"}
        # It cannot be removed yet.
        project = machine.state / "default"
        project.rename(project.with_name("elsewhere"))
        project.write_text("in the way")
        await client.delete("w1")
        assert await _made(client, "w2")
        project.unlink()
        project.with_name("elsewhere").rename(project)


async def test_what_is_supplied_has_no_limits(client: Client, machine: Machine) -> None:
    await client.adopt(machine.supplied())
    resolved = await client.resolve(local(machine.supplied()))
    assert (resolved.network, resolved.limits) == (HOST, ResourceLimits())


async def _made(client: Client, workspace_id: str, **names: str) -> bool:
    try:
        await client.provision(workspace_id, provision=ProvisionSpec(), **names)
    except ResourceExhausted:
        return False
    return True
