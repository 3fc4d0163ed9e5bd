"""An engine that does not answer, or was started again: nothing is concluded from that (W3)."""

from __future__ import annotations

import asyncio
import contextlib
import resource
from collections.abc import Iterator
from pathlib import Path

import pytest
from moorage.common.v1.binding_pb2 import Binding, CloudBinding
from moorage.workspace.v1 import workspace_pb2

from services.common import failpoints
from services.workspace.docker import engine as engines
from tests.conditions import eventually
from tests.engines import PrivateEngine
from tests.workspace.docker.yard import DOCKER, Yard, make
from tests.workspace.filing import Files, reason
from tests.workspace.instances import Client, Holder

DELETED = workspace_pb2.WORKSPACE_STATE_DELETED
DELETING = workspace_pb2.WORKSPACE_STATE_DELETING
PROVISIONING = workspace_pb2.WORKSPACE_STATE_PROVISIONING
READY = workspace_pb2.WORKSPACE_STATE_READY

pytestmark = pytest.mark.timeout(120)
BINDING = Binding(cloud=CloudBinding(provider="docker", workspace_ref="w1"))
# Calls of an engine under test that is paused: as long as one that works needs on a busy machine.
PATIENT = 3.0


async def waits(client: Client, workspace_id: str = "w1") -> str:
    """What a workspace in transition waits for, once it says so."""

    async def says() -> bool:
        return bool((await client.get(workspace_id)).state_reason)

    await eventually(says, within=30, what=f"{workspace_id} says what it waits for")
    return (await client.get(workspace_id)).state_reason


async def test_removal_waits_for_an_engine_that_was_stopped(lonely_yard: Yard, engine: PrivateEngine) -> None:
    async with lonely_yard.running() as (client, _):
        await make(client)
        (lonely_yard.directory() / "work").write_text("x")
        await engine.kill()
        await client.delete()
        assert "no engine" in await waits(client)
        assert (await client.get()).state == DELETING
        assert (lonely_yard.directory() / "work").read_text() == "x"
        await engine.start()
        assert (await client.settled()).state == DELETED
        assert not lonely_yard.directory().exists()
        assert await lonely_yard.containers() == []


async def test_removal_waits_for_an_engine_that_is_paused(lonely_yard: Yard, engine: PrivateEngine) -> None:
    async with lonely_yard.running(docker_timeout=PATIENT) as (client, _):
        await make(client)
        engine.pause()
        await client.delete()
        assert "does not answer" in await waits(client)
        assert (await client.get()).state == DELETING
        assert lonely_yard.directory().is_dir()
        engine.resume()
        assert (await client.settled()).state == DELETED
        assert not lonely_yard.directory().exists()
        assert await lonely_yard.containers() == []


async def test_making_waits_for_the_engine_and_makes_one_container(
    lonely_yard: Yard, engine: PrivateEngine
) -> None:
    async with lonely_yard.running(docker_timeout=PATIENT) as (client, _):
        engine.pause()
        await client.provision(provision=DOCKER)
        # What is asked for stands in line at the engine, more than once by and by.
        assert "does not answer" in await waits(client)
        assert (await client.get()).state == PROVISIONING
        engine.resume()
        assert (await client.settled()).state == READY
        assert len(await lonely_yard.containers()) == 1


async def test_what_is_deleted_while_its_creation_stands_in_line_leaves_nothing(
    lonely_yard: Yard, engine: PrivateEngine
) -> None:
    async with lonely_yard.running(docker_timeout=PATIENT) as (client, _):
        engine.pause()
        await client.provision(provision=DOCKER)
        await waits(client)
        await client.delete()
        engine.resume()
        assert (await client.settled()).state == DELETED

        async def none_left() -> bool:
            return await lonely_yard.containers() == [] and not lonely_yard.directory().exists()

        # The engine may carry it out after the removal: the collector finds it.
        await client.stub.CollectGarbage(workspace_pb2.CollectGarbageRequest())
        await eventually(none_left, within=30, what="container and directory are gone")


async def test_a_workspace_outlives_its_engine(
    lonely_yard: Yard, engine: PrivateEngine, holder: Holder
) -> None:
    async with lonely_yard.running() as (client, _):
        await make(client)
        grant = await holder.acquire()
        files = Files(client, grant)
        await files.write("work", b"kept")
        container = (await lonely_yard.inspect())["Id"]
        await engine.kill()
        # Nothing can run, which is no reason to lose it; its files are there all the time.
        assert (await client.exec(grant, "true").refusal()).reason_name == "DEPENDENCY_UNAVAILABLE"
        assert await reason(client.resolve(BINDING)) == "DEPENDENCY_UNAVAILABLE"
        assert await files.read("work") == b"kept"
        assert (await client.get()).state == READY
        await engine.start()
        ran = await client.exec(grant, "cat", "work").run()
        assert ran.stdout == b"kept"
        assert (await lonely_yard.inspect())["Id"] == container


async def test_an_engine_that_is_paused_says_so(
    lonely_yard: Yard, engine: PrivateEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engines, "_LOOK", 0.1)
    async with lonely_yard.running(docker_timeout=PATIENT) as (client, _):
        engine.pause()
        await eventually(lambda: _has_cause(client), within=30, what="the cause is told")
        engine.resume()
        await eventually(lambda: _has_none(client), within=30, what="it answers again")


async def test_a_start_that_is_refused_is_rolled_back_and_tried_again(
    yard: Yard, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The engine has accepted the container by then; the first error is what is told."""
    gates = tmp_path / "gates"
    gates.mkdir()
    gate = gates / "workspace.docker.before_start"
    gate.touch()
    monkeypatch.setitem(failpoints._active, gate.name, f"gate:{gates}")
    async with yard.running() as (client, _):
        await client.provision(provision=DOCKER)
        await eventually((gates / f"{gate.name}.reached").exists, within=30)
        assert len(await yard.containers()) == 1
        # The engine cannot mount what is not there.
        elsewhere = yard.directory().with_name("elsewhere")
        yard.directory().rename(elsewhere)
        yard.directory().write_text("in the way")
        gate.unlink()
        assert "in the way" not in await waits(client)
        assert await yard.containers() == []
        yard.directory().unlink()
        elsewhere.rename(yard.directory())
        assert (await client.settled()).state == READY
        assert len(await yard.containers()) == 1


async def test_a_rollback_that_fails_as_well_leaves_the_first_error_to_be_told(
    lonely_yard: Yard, engine: PrivateEngine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    gates = Gates(tmp_path / "gates", monkeypatch)
    start, roll_back, again = (
        gates.shut(f"workspace.docker.{point}")
        for point in ("before_start", "before_roll_back", "before_directory")
    )
    again.unlink()
    async with lonely_yard.running() as (client, _):
        await client.provision(provision=DOCKER)
        await gates.reached(start)
        elsewhere = lonely_yard.directory().with_name("elsewhere")
        lonely_yard.directory().rename(elsewhere)
        lonely_yard.directory().write_text("in the way")
        start.unlink()
        await gates.reached(roll_back)
        await engine.kill()
        again.touch()
        roll_back.unlink()
        # The next try would have another one to tell.
        await gates.reached(again)
        assert "runtime" in (told := await waits(client)), told
        assert "no engine" not in told
        lonely_yard.directory().unlink()
        elsewhere.rename(lonely_yard.directory())
        await engine.start()
        assert len(await lonely_yard.containers()) == 1
        again.unlink()
        assert (await client.settled()).state == READY
        assert len(await lonely_yard.containers()) == 1


class Gates:
    """Failpoints where whoever comes waits, as long as a file of its name is there."""

    def __init__(self, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        directory.mkdir()
        self._directory = directory
        self._monkeypatch = monkeypatch

    def shut(self, name: str) -> Path:
        """The file of one that is shut from now on."""
        self._monkeypatch.setitem(failpoints._active, name, f"gate:{self._directory}")
        gate = self._directory / name
        gate.touch()
        return gate

    async def reached(self, gate: Path) -> None:
        """Return when somebody waits there."""
        await eventually(gate.with_name(f"{gate.name}.reached").exists, within=30)


async def test_calls_in_line_at_a_paused_engine_hold_up_nobody_else(
    lonely_yard: Yard, engine: PrivateEngine, holder: Holder
) -> None:
    async with lonely_yard.running(docker_timeout=20.0, docker_threads=2) as (client, _):
        await make(client)
        await client.make("w2", session_id="s2")
        grant, other = await holder.acquire(), await holder.acquire("s2")
        engine.pause()
        hanging = [asyncio.create_task(client.exec(grant, "true").refusal()) for _ in range(20)]
        for number in range(10):
            await client.provision(f"made-{number}", provision=DOCKER)
        assert (await client.make("w3", session_id="s3")).state == READY
        await client.delete("w3")
        assert (await client.settled("w3")).state == DELETED
        local = client.exec(other, "echo", "local", workspace_id="w2")
        assert (await local.run()).stdout == b"local\n"
        assert await Files(client, grant).write("file", b"x") == 1
        assert len((await client.list_page()).workspaces) == 12
        assert not any(each.done() for each in hanging)
        engine.resume()
        for each in hanging:
            each.cancel()
        await asyncio.wait(hanging)


async def test_an_instance_that_can_open_nothing_says_nothing_about_the_container(
    client: Client, yard: Yard, holder: Holder, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    await make(client)
    grant = await holder.acquire()
    await yard.ask("kill", (await yard.inspect())["Id"])
    gates = Gates(tmp_path / "gates", monkeypatch)
    gate = gates.shut("workspace.docker.before_revive")
    ran = asyncio.create_task(client.exec(grant, "true").refusal())
    await gates.reached(gate)
    with no_more_files():
        gate.unlink()
        assert (await ran).reason_name == "DEPENDENCY_UNAVAILABLE"
    assert (await client.exec(grant, "echo", "again").run()).stdout == b"again\n"


@contextlib.contextmanager
def no_more_files() -> Iterator[None]:
    """Nothing can be opened in this process within the block; what is open stays."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


async def _has_cause(client: Client) -> bool:
    providers = (await client.stub.ListProviders(workspace_pb2.ListProvidersRequest())).providers
    return any(each.unavailable_cause for each in providers if each.name == "docker")


async def _has_none(client: Client) -> bool:
    return not await _has_cause(client)
