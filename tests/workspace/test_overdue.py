"""Workspaces whose time is over: ttl, idle_ttl, and the wish to delete after a while."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from moorage.common.v1 import provision_pb2
from moorage.workspace.v1 import workspace_pb2

from services.common.database import Database
from services.common.errors import MoorageError
from services.workspace.store.overdue import OverdueStore
from tests.databases import execute, fetch_value
from tests.workspace.garbage import Found, rows, told
from tests.workspace.instances import Client, Holder, Machine, duration
from tests.workspace.instances import told as answered

READY = workspace_pb2.WORKSPACE_STATE_READY
DELETED = workspace_pb2.WORKSPACE_STATE_DELETED
HOUR = duration(3600)


async def _make(client: Client, **spec: Any) -> Path:
    await client.provision(provision=provision_pb2.ProvisionSpec(**spec))
    return Path((await client.settled()).root)


async def _pass_time(machine: Machine, interval: str) -> None:
    """As if what is known of all workspaces had happened so much earlier."""
    await execute(
        machine.database_url,
        f"""
        UPDATE workspace.workspaces SET created_at = created_at - interval '{interval}',
            updated_at = updated_at - interval '{interval}',
            used_at = used_at - interval '{interval}', delete_at = delete_at - interval '{interval}'
        """,
    )


async def _delete(client: Client, after: float) -> workspace_pb2.Workspace:
    request = workspace_pb2.DeleteWorkspaceRequest(
        project="default", workspace_id="w1", after=duration(after)
    )
    return (await answered(client.stub.DeleteWorkspace(request))).workspace


async def test_a_workspace_goes_when_its_ttl_is_over(client: Client, machine: Machine) -> None:
    root = await _make(client, ttl=HOUR)
    await _pass_time(machine, "59 minutes")
    assert not (await client.collect()).garbage
    await _pass_time(machine, "2 minutes")
    dry = await client.collect(dry_run=True)
    assert told(dry) == [("expired", "w1", False)]
    assert dry.garbage[0].cause == "its ttl of 3600 s is over"
    assert (await client.get()).state == READY
    assert told(await client.collect()) == [("expired", "w1", True)]
    assert (await client.settled()).state == DELETED
    assert not root.exists()


async def test_a_ttl_ends_what_goes_on_in_it(client: Client, machine: Machine, holder: Holder) -> None:
    await _make(client, ttl=HOUR)
    async with client.exec(await holder.acquire(), "sleep", "600") as stream:
        await _pass_time(machine, "2 hours")
        assert told(await client.collect()) == [("expired", "w1", True)]
        error = (await stream.result()).error
    assert error is not None
    assert error.reason_name == "WORKSPACE_NOT_READY"


async def test_an_idle_workspace_goes_and_says_why(client: Client, machine: Machine) -> None:
    await _make(client, idle_ttl=HOUR)
    await _pass_time(machine, "60 minutes")
    assert not (await client.collect()).garbage, "a use may have been written down a minute late"
    await _pass_time(machine, "2 minutes")
    assert told(await client.collect(dry_run=True)) == [("idle", "w1", False)]
    answer = await client.collect()
    assert told(answer) == [("idle", "w1", True)]
    assert answer.garbage[0].cause == "it was not used for 3600 s"
    assert (await client.settled()).state == DELETED


@pytest.mark.parametrize("use", ["claim", "exec", "write"])
async def test_who_uses_it_keeps_it(client: Client, machine: Machine, holder: Holder, use: str) -> None:
    await _make(client, idle_ttl=HOUR)
    assert not (await client.get()).HasField("use_time")
    grant = await holder.acquire()
    await _pass_time(machine, "2 hours")
    if use == "claim":
        await client.claim(grant)
    elif use == "exec":
        await client.exec(grant, "true").run()
    else:
        write = workspace_pb2.WriteFileRequest(
            grant=grant, project="default", workspace_id="w1", path="file", data=b"x"
        )
        await answered(client.stub.WriteFile(write))
    assert (await client.get()).HasField("use_time")
    assert not (await client.collect()).garbage
    await _pass_time(machine, "2 hours")
    assert told(await client.collect()) == [("idle", "w1", True)]


async def test_what_runs_in_it_is_using_it(client: Client, machine: Machine, holder: Holder) -> None:
    await _make(client, idle_ttl=HOUR)
    async with client.exec(await holder.acquire(), "sleep", "600"):
        await _pass_time(machine, "2 hours")
        assert not (await client.collect()).garbage
    assert not (await client.collect()).garbage, "the hour begins when it has ended"
    await _pass_time(machine, "2 hours")
    assert told(await client.collect()) == [("idle", "w1", True)]


async def test_what_is_being_made_is_not_idle_however_long_it_takes(client: Client, machine: Machine) -> None:
    made = machine.directory / "made"
    command = ["sh", "-c", f"until [ -e {made} ]; do sleep 0.02; done"]
    spec = provision_pb2.ProvisionSpec(idle_ttl=HOUR, setup=provision_pb2.SetupCommand(command=command))
    await client.provision(provision=spec)
    await _pass_time(machine, "2 hours")
    assert not (await client.collect()).garbage
    assert (await client.get()).state == workspace_pb2.WORKSPACE_STATE_PROVISIONING
    made.touch()
    assert (await client.settled()).state == READY
    assert not (await client.collect()).garbage, "the hour begins when it is made"
    await _pass_time(machine, "2 hours")
    assert told(await client.collect()) == [("idle", "w1", True)]


@pytest.mark.parametrize(("state", "found"), [("LOST", [("idle", "w1", True)]), ("FAILED", [])])
async def test_what_has_ended_badly_is_idle_only_if_it_may_be_worth_something(
    client: Client, machine: Machine, state: str, found: list[Found]
) -> None:
    await _make(client, idle_ttl=HOUR)
    await execute(machine.database_url, "UPDATE workspace.workspaces SET state = $1", state)
    await _pass_time(machine, "2 hours")
    assert [each for each in told(await client.collect()) if each[0] != "orphan"] == found


async def test_what_runs_in_it_is_written_down_as_its_first_use(
    client: Client, machine: Machine, holder: Holder
) -> None:
    await _make(client, idle_ttl=HOUR)
    async with client.exec(await holder.acquire(), "sleep", "600"):
        # As if the instance had died before it wrote that down.
        await execute(machine.database_url, "UPDATE workspace.workspaces SET used_at = NULL")
        await _pass_time(machine, "2 hours")
        assert not (await client.collect()).garbage
    assert (await client.get()).HasField("use_time")
    assert not (await client.collect()).garbage


async def test_a_dry_run_changes_no_row(client: Client, machine: Machine, holder: Holder) -> None:
    await _make(client, idle_ttl=HOUR, ttl=duration(86400))
    await client.provision("w2", provision=provision_pb2.ProvisionSpec(idle_ttl=HOUR))
    await client.settled("w2")
    await client.provision("w3", provision=provision_pb2.ProvisionSpec(ttl=HOUR))
    await client.settled("w3")
    async with client.exec(await holder.acquire(), "sleep", "600"):
        await _pass_time(machine, "2 hours")
        before = await rows(machine.database_url)
        answer = await client.collect(dry_run=True)
        assert told(answer) == [("expired", "w3", False), ("idle", "w2", False)]
        assert await rows(machine.database_url) == before
        assert told(await client.collect()) == [("expired", "w3", True), ("idle", "w2", True)]
        assert await rows(machine.database_url) != before


async def test_a_use_is_written_down_once_a_minute(client: Client, machine: Machine, holder: Holder) -> None:
    await client.make()
    grant = await holder.acquire()
    await client.claim(grant)
    first = (await client.get()).use_time
    await client.claim(grant)
    assert (await client.get()).use_time == first
    await _pass_time(machine, "61 seconds")
    await client.claim(grant)
    assert (await client.get()).use_time.ToNanoseconds() > first.ToNanoseconds()


async def test_a_use_is_written_down_by_who_looks_at_that_provider_of_that_instance(
    client: Client, machine: Machine, database: Database
) -> None:
    await _make(client, idle_ttl=HOUR)
    used = {("default", "w1")}
    for instance_id, provider in (("another", "local"), (machine.instance_id, "docker")):
        assert await OverdueStore(database, instance_id).retire(provider, 10, used, dry_run=False) == []
        assert not (await client.get()).HasField("use_time")
    assert await OverdueStore(database, machine.instance_id).retire("local", 10, used, dry_run=False) == []
    assert (await client.get()).HasField("use_time")


async def test_a_stale_token_uses_nothing(client: Client, holder: Holder) -> None:
    await client.make()
    old = await holder.acquire()
    await client.claim(await holder.next(1))
    used = (await client.get()).use_time
    with pytest.raises(MoorageError) as caught:
        await client.claim(old)
    assert caught.value.reason_name == "STALE_OWNER"
    assert (await client.get()).use_time == used


async def test_without_a_ttl_it_stays(client: Client, machine: Machine) -> None:
    await client.make()
    await _pass_time(machine, "10 years")
    assert not (await client.collect()).garbage


async def test_a_wish_to_delete_later_is_carried_out_then(client: Client, machine: Machine) -> None:
    root = Path((await client.make()).root)
    wished = await _delete(client, 3600)
    assert wished.state == READY
    assert (await _delete(client, 7200)).delete_time == wished.delete_time, "the earliest wish counts"
    assert (await _delete(client, 1800)).delete_time.ToNanoseconds() < wished.delete_time.ToNanoseconds()
    assert not (await client.collect()).garbage
    await _pass_time(machine, "31 minutes")
    assert told(await client.collect()) == [("expired", "w1", True)]
    assert (await client.settled()).state == DELETED
    assert not root.exists()


async def test_a_supplied_directory_outlives_the_wish(client: Client, machine: Machine) -> None:
    supplied = machine.supplied()
    await client.adopt(supplied)
    await _delete(client, 1)
    await _pass_time(machine, "1 minute")
    assert told(await client.collect()) == [("expired", "w1", True)]
    assert (await client.settled()).state == DELETED
    assert supplied.is_dir()


async def test_a_use_that_commits_first_wins(client: Client, machine: Machine, database: Database) -> None:
    """Its row is locked by who uses it: the judgement goes by what the row says then, or by the next pass."""
    await _make(client, idle_ttl=HOUR)
    await _pass_time(machine, "2 hours")
    store = OverdueStore(database, machine.instance_id)
    async with database.transaction() as using:
        await using.execute("UPDATE workspace.workspaces SET used_at = clock_timestamp()")
        assert await store.retire("local", 10, dry_run=False) == []
    assert await store.retire("local", 10, dry_run=False) == []
    state = await fetch_value(machine.database_url, "SELECT state FROM workspace.workspaces")
    assert state == "READY"
