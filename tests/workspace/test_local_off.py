"""An instance whose provider `local` is off: nothing of an agent runs with its rights; what was made is still removed."""

from __future__ import annotations

from pathlib import Path

import pytest
from moorage.common.v1 import binding_pb2, provision_pb2
from moorage.workspace.v1 import workspace_pb2

from services.common.errors import MoorageError
from tests.workspace.instances import Client, Machine, local, running

CAUSE = "provider local is switched off on this instance"


async def test_neither_made_nor_supplied_directories_are_taken(machine: Machine) -> None:
    async with running(machine, local_enabled=False) as (client, _):
        with pytest.raises(MoorageError) as refused:
            await client.provision(provision=provision_pb2.ProvisionSpec(provider="local"))
        assert refused.value.reason_name == "PROVIDER_UNAVAILABLE"
        assert CAUSE in str(refused.value)
        with pytest.raises(MoorageError) as refused:
            await client.provision(binding=local(machine.supplied()))
        assert [(one.field, one.description) for one in refused.value.violations] == [
            ("binding.local.directory", CAUSE)
        ]
        with pytest.raises(MoorageError):
            await client.provision(binding=binding_pb2.Binding())
        assert (await client.list_page()).workspaces == []
        listed = (await client.stub.ListProviders(workspace_pb2.ListProvidersRequest())).providers
        [provider] = [one for one in listed if one.name == "local"]
        assert (provider.enabled, provider.root, provider.unavailable_cause) == (False, "", CAUSE)
        assert provider.withheld


async def test_nothing_runs_in_what_was_made_before_and_it_can_be_removed(machine: Machine) -> None:
    async with running(machine) as (client, _):
        root = Path((await client.make()).root)
    async with running(machine, local_enabled=False) as (client, _):
        assert await _refusal_to_resolve(client, root) == "WORKSPACE_NOT_READY"
        await client.delete()
        assert (await client.settled()).state == workspace_pb2.WORKSPACE_STATE_DELETED
    assert not root.exists()


async def _refusal_to_resolve(client: Client, root: Path) -> str:
    with pytest.raises(MoorageError) as refused:
        await client.resolve(local(root))
    assert CAUSE in str(refused.value)
    return refused.value.reason_name
