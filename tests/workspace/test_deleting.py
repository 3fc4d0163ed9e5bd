"""Removal: from every state, only what we made, never through a link (W3, W4)."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import asyncpg
import pytest
from moorage.common.v1 import binding_pb2, provision_pb2
from moorage.workspace.v1 import workspace_pb2

from services.common.errors import MoorageError
from tests.conditions import eventually
from tests.workspace.instances import Client, Holder, Machine, running
from tests.workspace.processes import is_alive

DELETED = workspace_pb2.WORKSPACE_STATE_DELETED


async def test_a_provisioned_directory_is_removed(client: Client, machine: Machine) -> None:
    root = Path((await client.make()).root)
    (root / "a" / "b").mkdir(parents=True)
    (root / "a" / "file").write_text("x")
    marked = await client.delete()
    assert marked.state in (workspace_pb2.WORKSPACE_STATE_DELETING, DELETED)
    assert (await client.settled()).state == DELETED
    assert not any((machine.state / "default").iterdir())


async def test_a_supplied_directory_is_not_touched(client: Client, machine: Machine) -> None:
    (machine.supplied() / "precious").touch()
    await client.adopt(machine.supplied())
    await client.delete()
    assert (await client.settled()).state == DELETED
    assert (machine.supplied() / "precious").exists()


async def test_links_are_removed_and_not_followed(client: Client, machine: Machine) -> None:
    root = Path((await client.make()).root)
    precious = machine.directory / "precious"
    precious.mkdir()
    (precious / "file").touch()
    (root / "directory").symlink_to(precious)
    (root / "file").symlink_to(precious / "file")
    (root / "dangling").symlink_to("nowhere")
    await client.delete()
    assert (await client.settled()).state == DELETED
    assert not root.exists()
    assert (precious / "file").exists()


async def test_a_directory_that_became_a_link_loses_only_the_link(client: Client, machine: Machine) -> None:
    root = Path((await client.make()).root)
    precious = machine.directory / "precious"
    precious.mkdir()
    (precious / "file").touch()
    root.rmdir()
    root.symlink_to(precious)
    await client.delete()
    assert (await client.settled()).state == DELETED
    assert not root.is_symlink()
    assert (precious / "file").exists()


async def test_a_project_directory_that_became_a_link_is_not_entered(
    client: Client, machine: Machine
) -> None:
    root = Path((await client.make()).root)
    (root / "file").touch()
    moved = machine.directory / "moved"
    root.parent.rename(moved)
    root.parent.symlink_to(moved)
    await client.delete()

    async def says_why() -> bool:
        found = await client.get()
        return found.state == workspace_pb2.WORKSPACE_STATE_DELETING and bool(found.state_reason)

    await eventually(says_why)
    assert (moved / "w1" / "file").exists()


async def test_what_may_not_be_written_is_removed_too(client: Client) -> None:
    root = Path((await client.make()).root)
    (root / "closed" / "inner").mkdir(parents=True)
    (root / "closed" / "file").touch()
    (root / "closed" / "inner").chmod(0)
    (root / "closed").chmod(0o500)
    await client.delete()
    assert (await client.settled()).state == DELETED
    assert not root.exists()


async def test_a_deep_tree_is_removed(client: Client) -> None:
    root = Path((await client.make()).root)
    fd = os.open(root, os.O_PATH)
    for _ in range(3000):
        os.mkdir("d", dir_fd=fd)
        below = os.open("d", os.O_PATH, dir_fd=fd)
        os.close(fd)
        fd = below
    os.close(fd)
    await client.delete()
    assert (await client.settled()).state == DELETED
    assert not root.exists()


async def test_its_processes_are_ended_first(client: Client, holder: Holder) -> None:
    await client.make()
    async with client.exec(
        await holder.acquire(), "sh", "-c", "while :; do echo x > f$RANDOM; done"
    ) as stream:
        await client.delete()
        assert (await client.settled()).state == DELETED
        assert not is_alive(stream.pid)
        error = (await stream.result()).error
        assert error is not None
        assert error.reason_name == "WORKSPACE_NOT_READY"
    refusal = await client.exec(await holder.next(1), "true").refusal()
    assert refusal.reason_name == "WORKSPACE_NOT_READY"
    assert refusal.metadata["state"] == "DELETED"


async def test_repeating_it_is_fine(client: Client) -> None:
    await client.make()
    for _ in range(3):
        await client.delete()
    assert (await client.settled()).state == DELETED
    assert (await client.delete()).state == DELETED


async def test_an_id_is_never_used_twice(client: Client) -> None:
    await client.make()
    await client.delete()
    await client.settled()
    with pytest.raises(MoorageError) as refused:
        await client.make()
    assert refused.value.reason_name == "WORKSPACE_ALREADY_EXISTS"
    assert refused.value.metadata["state"] == "DELETED"


async def test_a_missing_one_is_not_found(client: Client) -> None:
    with pytest.raises(MoorageError) as refused:
        await client.delete()
    assert refused.value.reason_name == "WORKSPACE_NOT_FOUND"


async def test_it_works_when_provisioning_is_disabled(machine: Machine) -> None:
    async with running(machine) as (client, _):
        root = Path((await client.make()).root)
    async with running(machine, provision_enabled=False) as (client, _):
        await client.delete()
        assert (await client.settled()).state == DELETED
    assert not root.exists()


@pytest.mark.parametrize("state", ["PROVISIONING", "READY", "FAILED", "LOST", "DELETING"])
async def test_it_works_from_every_state(
    client: Client, machine: Machine, database_url: str, state: str
) -> None:
    root = Path((await client.make()).root)
    connection = await asyncpg.connect(database_url)
    try:
        await connection.execute(
            """
            UPDATE workspace.workspaces
            SET state = $1, due_at = 'infinity', deadline = CASE $1 WHEN 'PROVISIONING' THEN 'infinity'::timestamptz END
            """,
            state,
        )
        if state == "DELETING":
            # It was asked for before, and nobody came to do it.
            await connection.execute("UPDATE workspace.workspaces SET due_at = clock_timestamp()")
    finally:
        await connection.close()
    await client.delete()
    assert (await client.settled()).state == DELETED
    assert not root.exists()


async def test_while_it_is_being_made(client: Client, machine: Machine) -> None:
    machine.state.mkdir()
    (machine.state / "default").touch()
    await client.provision(provision=provision_pb2.ProvisionSpec())
    assert (await client.delete()).state == workspace_pb2.WORKSPACE_STATE_DELETING
    (machine.state / "default").unlink()
    assert (await client.settled()).state == DELETED
    assert not (machine.state / "default" / "w1").exists()


async def test_a_provisioned_directory_that_vanished_is_lost(client: Client, holder: Holder) -> None:
    made = await client.make()
    Path(made.root).rmdir()
    binding = binding_pb2.Binding(local=binding_pb2.LocalBinding(directory=made.root))
    with pytest.raises(MoorageError) as refused:
        await client.resolve(binding)
    assert refused.value.reason_name == "WORKSPACE_NOT_READY"
    assert refused.value.metadata["state"] == "LOST"
    assert (await client.get()).state == workspace_pb2.WORKSPACE_STATE_LOST
    await client.delete()
    assert (await client.settled()).state == DELETED


async def test_what_was_left_of_writing_a_label_goes_too(client: Client, machine: Machine) -> None:
    root = Path((await client.make()).root)
    label = root.parent / "w1.json"
    # As a process leaves it that dies between two system calls.
    draft = label.with_name(f"w1.json.{hashlib.sha256(label.read_bytes()).hexdigest()[:16]}")
    label.rename(draft)
    (stranger := label.with_name("w1.json.0123456789abcdef")).touch()
    root.rmdir()
    await client.delete()
    assert (await client.settled()).state == DELETED
    assert list(root.parent.iterdir()) == [stranger]
