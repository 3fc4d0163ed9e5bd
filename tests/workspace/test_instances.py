"""An instance serves under its lease, alone, and only what is its own (F6, F10, W8)."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from moorage.owner.v1 import lease_pb2
from moorage.owner.v1.lease_pb2_grpc import LeaseServiceStub
from moorage.workspace.v1 import workspace_pb2

from services.common.channels import open_channel
from services.common.database import Connection, Database
from services.common.errors import MoorageError
from services.workspace.server import WorkspaceInstance, build
from tests.conditions import eventually
from tests.workspace.instances import Client, Holder, Machine, local, running, running_owner
from tests.workspace.processes import is_alive

SERVICE = "moorage.workspace.v1.WorkspaceService"
_SERVING = 1


async def _lease(owner_channel: grpc.aio.Channel, machine: Machine) -> lease_pb2.Lease:
    stub = LeaseServiceStub(owner_channel)
    request = lease_pb2.GetLeaseRequest(resource=f"instances/{machine.instance_id}")
    response: lease_pb2.GetLeaseResponse = await stub.GetLease(request)
    return response.lease


async def _is_serving(channel: grpc.aio.Channel, name: str = SERVICE) -> bool:
    # The published stubs know nothing of asyncio, nor of the values of the status.
    stub: Any = health_pb2_grpc.HealthStub(channel)
    response = await stub.Check(health_pb2.HealthCheckRequest(service=name))
    return bool(response.status == _SERVING)


async def test_it_holds_its_lease_while_it_serves(machine: Machine, owner_channel: grpc.aio.Channel) -> None:
    async with running(machine) as (client, instance):
        lease = await _lease(owner_channel, machine)
        assert lease.live
        assert lease.holder.startswith(f"{machine.instance_id}/")
        assert lease.endpoint == instance.endpoint
        assert lease.labels == {"role": "service"}
        for name in ("", "ready", "live", SERVICE):
            assert await _is_serving(client.channel, name)
    assert not (await _lease(owner_channel, machine)).live


async def test_who_has_not_the_lease_does_not_serve(machine: Machine, holder: Holder) -> None:
    async with running(machine) as (client, _):
        await client.adopt(machine.supplied())
        grant = await holder.acquire()
        second = build(machine.settings())
        async with waiting(second):
            await eventually(lambda: not second.endpoint.endswith(":0"))
            async with open_channel(second.endpoint) as channel:
                assert not await _is_serving(channel)
                refusal = await Client(channel).exec(grant, "true").refusal()
                assert refusal.reason_name == "DEPENDENCY_UNAVAILABLE"


async def test_the_next_one_serves_when_the_first_has_left(machine: Machine) -> None:
    second = build(machine.settings())
    async with running(machine) as (client, _):
        await client.adopt(machine.supplied())
        entering = asyncio.create_task(until_left(second, leave := asyncio.Event()))
        await eventually(lambda: not second.endpoint.endswith(":0"))
        assert not second.instance.serves
    await second.server.until_ready()
    async with open_channel(second.endpoint) as channel:
        assert (await Client(channel).get()).endpoint == second.endpoint
    leave.set()
    await entering


async def test_a_lost_lease_ends_everything_and_is_taken_again(machine: Machine, holder: Holder) -> None:
    grant = await holder.acquire()
    # An address of its own for this instance's owner, which can go away and come back.
    async with running_owner(machine.database_url) as address:
        pass
    lonely = Machine(machine.database_url, address, machine.directory, machine.instance_id)
    instance = build(lonely.settings(lease_ttl=2.0))
    leave = asyncio.Event()
    async with asyncio.TaskGroup() as group:
        group.create_task(until_left(instance, leave))
        async with running_owner(machine.database_url, address):
            await instance.server.until_ready()
        async with open_channel(instance.endpoint) as channel:
            client = Client(channel)
            await client.adopt(machine.supplied())
            async with client.exec(grant, "sleep", "600") as stream:
                error = (await stream.result()).error
                assert error is not None
                assert error.metadata["dependency"] == "instance lease"
                assert not is_alive(stream.pid)
            await eventually(lambda: _is_not_serving(client))
            refusal = await client.exec(grant, "true").refusal()
            assert refusal.metadata["dependency"] == "instance lease"
            with pytest.raises(MoorageError):
                await client.claim(grant)
            async with running_owner(machine.database_url, address):
                await instance.server.until_ready()
                assert (await client.exec(grant, "true").run()).how == ("exit_code", 0)
                leave.set()


@pytest.mark.parametrize("call", ["exec", "claim"])
async def test_what_arrived_before_the_end_is_refused_after_it(
    machine: Machine, holder: Holder, database: Database, call: str
) -> None:
    """A call that waits for the database while the instance leaves starts nothing afterwards."""
    async with running(machine) as (client, instance):
        await client.adopt(machine.supplied())
        grant = await holder.acquire()
        async with database.transaction() as connection:
            await connection.execute("LOCK TABLE workspace.workspaces IN ACCESS EXCLUSIVE MODE")
            command = client.exec(grant, "sh", "-c", "echo ran > ran; exec sleep 600")
            waiting = asyncio.create_task(
                command.refusal() if call == "exec" else refused(client.claim(grant))
            )
            await eventually(lambda: _somebody_waits(connection))
            await instance.instance.drain()
        assert (await waiting).reason_name == "SHUTTING_DOWN"
        assert not (machine.supplied() / "ran").exists()


async def refused(call: Awaitable[object]) -> MoorageError:
    with pytest.raises(MoorageError) as refusal:
        await call
    return refusal.value


async def _somebody_waits(connection: Connection) -> bool:
    waiting: int = await connection.fetchval(
        "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' "
        "AND datname = current_database()"
    )
    return waiting > 0


async def until_left(instance: WorkspaceInstance, leave: asyncio.Event) -> None:
    """Serve until told to leave."""
    async with instance.running():
        await leave.wait()


@contextlib.asynccontextmanager
async def waiting(instance: WorkspaceInstance) -> AsyncIterator[None]:
    """One that will not be ready, for as long as the block lasts."""
    task = asyncio.create_task(until_left(instance, asyncio.Event()))
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait({task})


async def _is_not_serving(client: Client) -> bool:
    return not await _is_serving(client.channel)


CALLS: dict[str, Callable[[Client, Machine], Awaitable[object]]] = {
    "ProvisionWorkspace": lambda client, machine: client.provision(binding=local(machine.supplied())),
    "GetWorkspace": lambda client, _: client.get(),
    "GetWorkspace with wait": lambda client, _: client.get(wait=True),
    "DeleteWorkspace": lambda client, _: client.delete(),
    "ResolveBinding": lambda client, machine: client.resolve(local(machine.supplied())),
    "ClaimWorkspace": lambda client, _: client.claim(None),
    "Exec": lambda client, _: client.exec(None, "true").__aenter__(),
}


async def test_another_instance_tells_where_to_go(machine: Machine) -> None:
    other = Machine(machine.database_url, machine.owner_address, machine.directory)
    async with running(machine) as (client, instance), running(other) as (stranger, _):
        await client.adopt(machine.supplied())
        for name, call in CALLS.items():
            with pytest.raises(MoorageError) as refused:
                await call(stranger, machine)
            assert refused.value.reason_name == "WRONG_INSTANCE", name
            assert refused.value.metadata["endpoint"] == instance.endpoint
        assert (await client.get()).state == workspace_pb2.WORKSPACE_STATE_READY


async def test_a_moved_instance_is_found_at_its_new_endpoint(machine: Machine) -> None:
    other = Machine(machine.database_url, machine.owner_address, machine.directory)
    async with running(machine) as (client, _):
        await client.adopt(machine.supplied())
    async with running(machine) as (_, moved), running(other) as (stranger, _):
        with pytest.raises(MoorageError) as refused:
            await stranger.get()
        assert refused.value.metadata["endpoint"] == moved.endpoint
