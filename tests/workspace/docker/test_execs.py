"""Exec in containers, through the service: fenced, whole, and dead when it has to be (W6, F6)."""

from __future__ import annotations

import os
import secrets
import signal
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from moorage.common.v1.grant_pb2 import Grant
from moorage.workspace.v1 import workspace_pb2

from services.common.errors import MoorageError
from services.workspace.docker.engine import Engine
from services.workspace.docker.exec import process
from services.workspace.docker.exec.helpers import Helpers
from services.workspace.docker.exec.mount import Mount, Seen
from services.workspace.docker.labels import PREFIX
from services.workspace.exec.marker import Marker
from tests.conditions import eventually
from tests.engines import PrivateEngine
from tests.workspace.docker.cutting import cut_off
from tests.workspace.docker.yard import Yard, make
from tests.workspace.instances import Client, Holder, duration
from tests.workspace.processes import appears, with_argument
from tests.workspace.real import ServiceProcess, started

MEGABYTE = 1_000_000


@pytest.fixture
def tag() -> str:
    """For how long the processes of a test sleep: no others do."""
    return f"6{secrets.randbelow(10**8):08}"


@pytest.fixture
async def grant(client: Client, holder: Holder) -> Grant:
    """Of the session whose container is ready."""
    assert (await make(client)).state == workspace_pb2.WORKSPACE_STATE_READY
    return await holder.acquire()


def family(tag: str) -> str:
    """One in the group, one that left it, one that cleared its environment as well."""
    return f"sleep {tag} & setsid sleep {tag} & setsid env -i /bin/sleep {tag} & wait"


async def test_it_runs_in_the_directory_with_what_is_declared(
    client: Client, grant: Grant, yard: Yard
) -> None:
    (yard.directory() / "inner").mkdir()
    result = await client.exec(
        grant,
        "sh",
        "-c",
        "pwd; env | grep -v MOORAGE_EXEC= | sort; id -u",
        directory="inner",
        environment={"A": "1"},
    ).run()
    lines = result.stdout.decode().splitlines()
    assert lines[0] == str(yard.directory() / "inner")
    assert [line.partition("=")[0] for line in lines[1:-1]] == ["A", "PATH", "PWD", "SHLVL"]
    assert lines[-1] != "0"
    assert result.how == ("exit_code", 0)


async def test_ends_are_not_mixed_up(client: Client, grant: Grant) -> None:
    for script, how in (("exit 137", ("exit_code", 137)), ("kill -KILL $$", ("signal", "SIGKILL"))):
        assert (await client.exec(grant, "sh", "-c", script).run()).how == how
    result = await client.exec(grant, "sleep", "600", timeout=duration(0.3)).run()
    assert (result.how[0], result.ended.out_of_memory) == ("timeout", False)


async def test_a_command_that_stops_its_helper_ends_by_its_timeout_all_the_same(
    client: Client, grant: Grant, tag: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody is left to report what killed it."""
    monkeypatch.setattr(process, "_KILL_PATIENCE", 0.1)
    script = f"read go; kill -STOP $PPID; sleep {tag}"
    result = await client.exec(grant, "sh", "-c", script, timeout=duration(0.3)).run(b"go\n")
    assert result.how[0] == "timeout"
    assert with_argument(tag) == []


async def test_memory_that_was_used_up_is_told(client: Client, grant: Grant) -> None:
    result = await client.exec(grant, "tail", "/dev/zero").run()
    assert (result.how, result.ended.out_of_memory) == (("signal", "SIGKILL"), True)
    assert not (await client.exec(grant, "true").run()).ended.out_of_memory


async def test_a_claim_with_a_higher_token_returns_when_all_are_dead(
    client: Client, grant: Grant, holder: Holder, tag: str
) -> None:
    async with client.exec(grant, "sh", "-c", family(tag)) as stream:
        await appears(tag, 3)
        assert (await client.claim(await holder.next(1))).ended_execs == 1
        assert with_argument(tag) == []
        error = (await stream.result()).error
        assert error is not None
        assert error.reason_name == "STALE_OWNER"


async def test_a_start_with_a_higher_token_ends_what_is_lower(
    client: Client, grant: Grant, holder: Holder, tag: str
) -> None:
    async with client.exec(grant, "sh", "-c", family(tag)):
        await appears(tag, 3)
        async with client.exec(await holder.next(1), "sleep", "600"):
            assert with_argument(tag) == []


async def test_a_claim_kills_through_a_stopped_helper(
    client: Client, grant: Grant, holder: Holder, tag: str
) -> None:
    script = f"setsid sleep {tag} & read go; kill -STOP $PPID; sleep {tag}"
    async with client.exec(grant, "sh", "-c", script) as stream:
        await stream.write(b"go\n")
        await appears(tag, 2)
        await client.claim(await holder.next(1))
        assert with_argument(tag) == []


async def test_a_command_dies_with_its_newest_grant(
    client: Client, grant: Grant, holder: Holder, tag: str
) -> None:
    short = await holder.next(1, ttl=3.0)
    async with client.exec(short, "sh", "-c", family(tag)) as stream:
        await appears(tag, 3)
        error = (await stream.result()).error
    assert with_argument(tag) == []
    assert error is not None
    assert error.reason_name == "LEASE_EXPIRED"
    with pytest.raises(MoorageError, match="held"):
        await holder.acquire()


async def test_a_caller_that_vanishes_takes_its_processes_along(
    client: Client, grant: Grant, tag: str
) -> None:
    async with client.exec(grant, "sh", "-c", family(tag)):
        await appears(tag, 3)
    await eventually(lambda: not with_argument(tag))


async def test_a_removed_container_ends_the_stream_as_that(
    client: Client, grant: Grant, yard: Yard, tag: str
) -> None:
    async with client.exec(grant, "sh", "-c", family(tag)) as stream:
        await appears(tag, 3)
        await yard.ask("remove_container", (await yard.inspect())["Id"], force=True)
        error = (await stream.result()).error
    assert error is not None
    assert (error.reason_name, error.metadata["state"]) == ("WORKSPACE_NOT_READY", "LOST")
    assert with_argument(tag) == []


async def test_a_stopped_container_ends_the_stream_and_not_the_workspace(
    client: Client, grant: Grant, yard: Yard, tag: str
) -> None:
    async with client.exec(grant, "sh", "-c", family(tag)) as stream:
        await appears(tag, 3)
        await yard.ask("kill", (await yard.inspect())["Id"])
        error = (await stream.result()).error
    assert error is not None
    assert (error.reason_name, error.metadata["state"]) == ("WORKSPACE_NOT_READY", "READY")
    assert str(error) == "what ran in workspace w1 ended, as its container stopped: exited"
    assert with_argument(tag) == []
    assert (await client.exec(grant, "echo", "again").run()).stdout == b"again\n"


async def test_ten_megabytes_both_ways(client: Client, grant: Grant) -> None:
    data = os.urandom(10 * MEGABYTE)
    assert (await client.exec(grant, "cat").run(data)).stdout == data


async def test_a_claim_does_not_wait_for_an_engine_that_is_paused(
    lonely_yard: Yard, engine: PrivateEngine, holder: Holder, tag: str
) -> None:
    async with lonely_yard.running(lease_ttl=4.0, docker_timeout=2.0) as (client, _):
        await make(client)
        async with client.exec(await holder.acquire(), "sh", "-c", family(tag)):
            await appears(tag, 3)
            engine.pause()
            try:
                claimed = await client.claim(await holder.next(1), timeout=30)
                assert claimed.ended_execs == 1
                assert with_argument(tag) == []
            finally:
                engine.resume()


@pytest.fixture
async def service(yard: Yard) -> AsyncIterator[ServiceProcess]:
    """The service as a process, with containers."""
    async with started(yard.machine, "--lease-ttl", "4", **variables(yard)) as service:
        yield service


def variables(yard: Yard) -> dict[str, str]:
    """Its settings."""
    return {
        "MOORAGE_WORKSPACE_DOCKER_HOST": yard.address,
        "MOORAGE_WORKSPACE_DOCKER_IMAGES": '["moorage-test:busybox"]',
    }


async def test_a_killed_instance_takes_its_processes_along(
    service: ServiceProcess, holder: Holder, tag: str
) -> None:
    client = await service.client()
    await make(client)
    async with client.exec(await holder.acquire(), "sh", "-c", family(tag)):
        await appears(tag, 3)
        await service.kill()
        await eventually(lambda: not with_argument(tag))
    await client.channel.close()


async def test_a_paused_instance_leaves_nothing_when_its_lease_is_over(
    service: ServiceProcess, yard: Yard, holder: Holder, tag: str
) -> None:
    client = await service.client()
    await make(client)
    async with client.exec(await holder.acquire(), "sh", "-c", family(tag)):
        await appears(tag, 3)
        os.kill(service.pid, signal.SIGSTOP)
        async with started(yard.machine, **variables(yard)) as successor:
            await (await successor.client()).channel.close()
            assert with_argument(tag) == []
    await client.channel.close()


async def test_what_an_earlier_start_has_left_is_ended_also_where_nothing_is_made_any_more(
    yard: Yard, tag: str
) -> None:
    async with yard.running() as (client, _):
        await make(client)
    container = await yard.inspect()
    engine = Engine(yard.address, threads=1, timeout=30.0)
    helpers = Helpers(engine, lambda: time.clock_gettime(time.CLOCK_BOOTTIME) + 600)
    labels = container["Config"]["Labels"]
    helpers.prepare(Marker(labels[f"{PREFIX}deployment"], yard.machine.instance_id, "earlier"))
    root = yard.directory().stat()
    mount = Mount(str(yard.directory()), Seen(root.st_dev, root.st_ino))
    earlier = await helpers.spawn(container["Id"], mount, "/", None)
    try:
        await earlier.start(["/bin/sleep", tag], {}, terminal=False)
        await appears(tag, 1)
        async with yard.running(docker_enabled=False):
            assert with_argument(tag) == []
    finally:
        earlier.close()
        engine.close()


@pytest.mark.parametrize("words", [b"", b"context canceled: the daemon is shutting down\r\n"])
async def test_an_engine_that_goes_before_the_helper_is_ready_is_waited_for(
    yard: Yard, holder: Holder, words: bytes
) -> None:
    """Nothing was started, so it is no answer to whoever wanted to start something."""
    async with cut_off(yard.address) as cutter, Yard(yard.machine, cutter.address).running() as (client, _):
        await make(client)
        grant = await holder.acquire()
        cutter.armed, cutter.words = True, words
        assert (await client.exec(grant, "true").refusal()).reason_name == "DEPENDENCY_UNAVAILABLE"
        assert not cutter.armed
        assert (await client.exec(grant, "echo", "again").run()).stdout == b"again\n"


@pytest.mark.parametrize("words", [b"", b"context canceled: the daemon is shutting down\r\n"])
async def test_an_engine_that_goes_when_the_helper_was_told_what_to_run_is_no_verdict(
    yard: Yard, holder: Holder, tag: str, words: bytes
) -> None:
    """It may have run, or not: whoever takes that for a command that cannot be started runs it again."""
    async with cut_off(yard.address) as cutter, Yard(yard.machine, cutter.address).running() as (client, _):
        await make(client)
        grant = await holder.acquire()
        cutter.armed, cutter.words, cutter.pieces = True, words, 1
        error = await client.exec(grant, "sh", "-c", family(tag)).refusal()
        assert error.reason_name == "DEPENDENCY_UNAVAILABLE"
        assert "it is not known whether the command was started" in str(error)
        assert not cutter.armed
        assert with_argument(tag) == []


async def test_memory_stays_flat_while_a_hundred_megabytes_pass(
    service: ServiceProcess, holder: Holder
) -> None:
    client = await service.client()
    await make(client)
    grant = await holder.acquire()
    await client.exec(grant, "head", "-c", str(20 * MEGABYTE), "/dev/zero").run()
    before = resident(service)
    async with client.exec(grant, "head", "-c", str(100 * MEGABYTE), "/dev/zero") as stream:
        size = peak = looks = 0
        while (message := await stream.read()) is not None:
            size += len(message.stdout)
            if size > looks * MEGABYTE:
                looks, peak = looks + 1, max(peak, resident(service))
    assert size == 100 * MEGABYTE
    assert peak - before < 20 * MEGABYTE
    await client.channel.close()


def resident(service: ServiceProcess) -> int:
    """Bytes of memory."""
    return int(Path(f"/proc/{service.pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
