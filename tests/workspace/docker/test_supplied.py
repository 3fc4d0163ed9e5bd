"""Directories that are sources: whose what is made there is, and that none leads to another session's (W5, W7)."""

from __future__ import annotations

import asyncio
import os
from dataclasses import dataclass
from pathlib import Path

import pytest
from moorage.common.v1 import provision_pb2
from moorage.common.v1.provision_pb2 import WorkspaceSource
from moorage.workspace.v1 import workspace_pb2

from services.common.errors import InvalidArgument
from tests.workspace.docker.yard import DOCKER, Yard, make
from tests.workspace.filing import Files, reason
from tests.workspace.instances import PROJECT, Client, Holder

READY = workspace_pb2.WORKSPACE_STATE_READY


def source(directory: Path) -> WorkspaceSource:
    return WorkspaceSource(path=provision_pb2.PathSource(directory=str(directory)))


@pytest.mark.parametrize(
    ("owner", "user"),
    [
        ((0, 0), (10001, 10001)),
        ((0, 12345), (10001, 10001)),
        ((12345, 0), (12345, 10001)),
        ((12345, 12345), (12345, 12345)),
    ],
)
async def test_what_is_written_belongs_to_who_works_there(
    client: Client, yard: Yard, holder: Holder, owner: tuple[int, int], user: tuple[int, int]
) -> None:
    supplied = yard.machine.supplied()
    os.chown(supplied, *owner)
    assert (await make(client, source=source(supplied))).state == READY
    grant = await holder.acquire()
    await Files(client, grant).write("made/by/outside", b"one\n")
    for path in supplied.rglob("*"):
        assert (path.stat().st_uid, path.stat().st_gid) == user, path
    script = "id -u; id -g; echo two >> made/by/outside && cat made/by/outside"
    ran = await client.exec(grant, "sh", "-c", script).run()
    assert ran.stdout.decode().split() == [*map(str, user), "one", "two"]
    # What was there is whose it was.
    assert (supplied.stat().st_uid, supplied.stat().st_gid) == owner


async def test_a_directory_in_which_only_root_may_write_is_no_source(client: Client, yard: Yard) -> None:
    """An agent could do nothing there, and its turns would complete all the same."""
    supplied = yard.machine.supplied()
    supplied.chmod(0o755)
    with pytest.raises(InvalidArgument) as refused:
        await make(client, source=source(supplied))
    assert refused.value.reason_name == "DIRECTORY_NOT_WRITABLE"
    assert f"user 10001, who may not write there; `chown 10001:10001 {supplied}` lets them" in str(
        refused.value
    )
    os.chown(supplied, 10001, 10001)
    assert (await make(client, source=source(supplied))).state == READY


@dataclass(frozen=True, slots=True)
class Trap:
    """A directory whose owner replaces it by a link to what another session has; both lie below the root."""

    path: Path
    others: Path

    def set(self) -> None:
        self.path.rename(self.path.with_name("aside"))
        self.path.symlink_to(self.others)


@pytest.fixture
async def trap(yard: Yard) -> Trap:
    path = yard.machine.supplied() / "sub"
    path.mkdir()
    path.chmod(0o777)
    return Trap(path, yard.directory("others"))


async def _make_others(client: Client, trap: Trap) -> None:
    await client.provision("others", provision=DOCKER, session_id="others")
    assert (await client.settled("others")).state == READY
    (trap.others / "secret").write_text("theirs")


@pytest.mark.parametrize("below", ["", "deep", "link"])
async def test_what_another_session_has_is_no_source(yard: Yard, trap: Trap, below: str) -> None:
    async with yard.running(root=yard.machine.directory) as (client, _):
        await _make_others(client, trap)
        (trap.others / "deep").mkdir()
        (trap.path / "link").symlink_to(trap.others)
        directory = trap.path / below if below == "link" else trap.others / below
        with pytest.raises(InvalidArgument, match="lies among the provisioned workspaces") as refused:
            await make(client, source=source(directory))
        assert [each.field for each in refused.value.violations] == ["provision.source.path.directory"]


async def test_what_is_replaced_by_a_link_to_anothers_is_not_used(
    yard: Yard, trap: Trap, holder: Holder
) -> None:
    """The engine would follow the link as the instance does, so it would be the same inside and outside."""
    async with yard.running(root=yard.machine.directory) as (client, _):
        await _make_others(client, trap)
        assert (await make(client, source=source(trap.path))).state == READY
        await yard.ask("kill", (await yard.inspect())["Id"])
        trap.set()
        grant = await holder.acquire()
        executed, written = await asyncio.gather(
            client.exec(grant, "cat", "secret").refusal(),
            reason(Files(client, grant).read("secret")),
        )
        assert executed.reason_name == written == "WORKSPACE_NOT_READY"
    assert (trap.others / "secret").read_text() == "theirs"
    assert trap.others.parent.name == PROJECT


async def test_what_came_to_lie_in_the_state_directory_is_not_used(yard: Yard, holder: Holder) -> None:
    """It was accepted under other settings."""
    supplied = yard.machine.supplied()
    async with yard.running() as (client, _):
        assert (await make(client, source=source(supplied))).state == READY
    above = {"root": yard.machine.directory, "state_directory": yard.machine.root}
    async with yard.running(**above) as (client, _):
        refused = await client.exec(await holder.acquire(), "true").refusal()
        assert "provisioned workspaces" in str(refused)
