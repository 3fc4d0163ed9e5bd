"""Links put in the place of a directory that is a source, between a look at it and the engine's mount (W5, W7)."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path

import pytest
from moorage.common.v1 import provision_pb2
from moorage.common.v1.provision_pb2 import ProvisionSpec, WorkspaceSource
from moorage.workspace.v1 import workspace_pb2

from services.common import failpoints
from tests.conditions import eventually
from tests.workspace.docker.cutting import cut_off
from tests.workspace.docker.yard import Yard, make
from tests.workspace.instances import Client, Holder

DELETED = workspace_pb2.WORKSPACE_STATE_DELETED
FAILED = workspace_pb2.WORKSPACE_STATE_FAILED
READY = workspace_pb2.WORKSPACE_STATE_READY


@dataclass(frozen=True, slots=True)
class Trap:
    """A directory in another one, whose owner may replace it by a link to somewhere else."""

    path: Path
    outside: Path

    @property
    def source(self) -> WorkspaceSource:
        return WorkspaceSource(path=provision_pb2.PathSource(directory=str(self.path)))

    @property
    def _aside(self) -> Path:
        return self.path.with_name("aside")

    def set(self) -> None:
        """Whoever opens it now is somewhere else."""
        self.path.rename(self._aside)
        self.path.symlink_to(self.outside)

    def unset(self) -> None:
        self.path.unlink()
        self._aside.rename(self.path)


@pytest.fixture
def trap(yard: Yard, tmp_path: Path) -> Trap:
    path, outside = yard.machine.supplied() / "sub", tmp_path / "outside"
    for directory in (path, outside):
        directory.mkdir()
        directory.chmod(0o777)
        (directory / "here").write_text(directory.name)
    return Trap(path, outside)


@pytest.fixture
def pause(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Names what is paused, as failpoints of that name do until it is there."""
    for point in ("before_create", "before_start", "before_revive", "before_exec"):
        monkeypatch.setitem(failpoints._active, f"workspace.docker.{point}", f"gate:{tmp_path}/gates")
    gates = tmp_path / "gates"
    gates.mkdir()
    return gates


async def reached(gate: Path) -> None:
    await eventually(gate.with_name(f"{gate.name}.reached").exists, within=30)


@pytest.mark.parametrize("point", ["before_create", "before_start"])
async def test_what_was_swapped_while_it_is_made_is_refused(
    point: str, yard: Yard, trap: Trap, pause: Path
) -> None:
    gate = pause / f"workspace.docker.{point}"
    gate.touch()
    async with yard.running() as (client, _):
        await client.provision(provision=ProvisionSpec(provider="docker", source=trap.source))
        await reached(gate)
        trap.set()
        gate.unlink()
        workspace = await client.settled()
        assert workspace.state == FAILED
        assert "another directory" in workspace.state_reason
        assert await yard.containers() == []
    assert [path.name for path in trap.outside.iterdir()] == ["here"]


async def test_what_was_swapped_before_it_is_started_again_is_refused(
    yard: Yard, trap: Trap, pause: Path, holder: Holder
) -> None:
    async with yard.running() as (client, _):
        assert (await make(client, source=trap.source)).state == READY
        await _kill(yard)
        gate = pause / "workspace.docker.before_revive"
        gate.touch()
        grant = await holder.acquire()
        ran = asyncio.create_task(client.exec(grant, "touch", "made").refusal())
        await reached(gate)
        trap.set()
        gate.unlink()
        refused = await ran
        assert refused.reason_name == "WORKSPACE_NOT_READY"
        assert "another directory" in str(refused)
        assert not (await yard.inspect())["State"]["Running"]
    assert [path.name for path in trap.outside.iterdir()] == ["here"]


async def test_what_is_started_again_before_a_command_can_be_is_refused(
    client: Client, yard: Yard, trap: Trap, pause: Path, holder: Holder
) -> None:
    """What was seen of a container holds for the command only if its own helper has seen it."""
    assert (await make(client, source=trap.source)).state == READY
    gate = pause / "workspace.docker.before_exec"
    gate.touch()
    grant = await holder.acquire()
    ran = asyncio.create_task(client.exec(grant, "touch", "made").refusal())
    await reached(gate)
    await _kill(yard)
    trap.set()
    await yard.ask("start", (await yard.inspect())["Id"])
    gate.unlink()
    refused = await ran
    assert refused.reason_name == "WORKSPACE_NOT_READY"
    assert "another directory" in str(refused)
    assert not (await yard.inspect())["State"]["Running"]
    assert [path.name for path in trap.outside.iterdir()] == ["here"]


async def test_what_somebody_else_has_started_is_looked_at_as_well(
    client: Client, yard: Yard, trap: Trap, holder: Holder
) -> None:
    """As is what an earlier start of the instance did not come to look at."""
    assert (await make(client, source=trap.source)).state == READY
    await _kill(yard)
    trap.set()
    await yard.ask("start", (await yard.inspect())["Id"])
    trap.unset()
    grant = await holder.acquire()
    assert (await client.exec(grant, "cat", "here").refusal()).reason_name == "WORKSPACE_NOT_READY"
    # It was stopped, and what is started now has the right one.
    assert (await client.exec(grant, "cat", "here").run()).stdout == b"sub"
    await client.delete()
    assert (await client.settled()).state == DELETED


async def test_what_an_engine_says_in_the_helpers_place_tells_of_no_directory(yard: Yard, trap: Trap) -> None:
    async with cut_off(yard.address) as cutter, Yard(yard.machine, cutter.address).running() as (client, _):
        cutter.armed, cutter.words = True, b"context canceled: the daemon is shutting down\r\n"
        workspace = await make(client, source=trap.source)
        assert not cutter.armed
        assert workspace.state == READY, workspace.state_reason


async def _kill(yard: Yard) -> None:
    await yard.ask("kill", (await yard.inspect())["Id"])

    async def stopped() -> bool:
        return not (await yard.inspect())["State"]["Running"]

    await eventually(stopped, what="it is stopped")
