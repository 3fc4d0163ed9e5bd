"""What guards the processes may be killed itself: nothing gets away, and others go on."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import pytest
from moorage.common.v1.grant_pb2 import Grant

from services.common.errors import Cancelled
from services.workspace.exec.execs import Execs, SessionKey
from services.workspace.exec.marker import Marker, kill_marked
from services.workspace.exec.process import StartFailed
from tests.conditions import eventually
from tests.workspace.bench import Bench
from tests.workspace.instances import Client, Holder, Machine
from tests.workspace.processes import is_alive, parent_of
from tests.workspace.streams import Stream


@pytest.fixture
async def grant(client: Client, holder: Holder, machine: Machine) -> Grant:
    """Of the session whose workspace is ready."""
    await client.adopt(machine.supplied())
    return await holder.acquire()


async def _pids(stream: Stream, count: int) -> list[int]:
    text = await stream.read_until(b"all\n")
    pids = [int(word) for word in text.split()[:-1]]
    assert len(pids) == count
    return pids


async def test_a_killed_shim_takes_its_command_along(client: Client, grant: Grant) -> None:
    script = "sleep 600 & echo $!; setsid sleep 600 & echo $!; echo $$; echo all; wait"
    async with client.exec(grant, "sh", "-c", script) as stream:
        pids = await _pids(stream, 3)
        os.kill(parent_of(stream.pid), signal.SIGKILL)
        assert (await stream.result()).how == ("signal", "SIGKILL")
        assert not any(map(is_alive, pids))


async def test_what_a_killed_shim_cannot_be_asked_for_is_adopted_and_killed(
    client: Client, grant: Grant
) -> None:
    script = "env -i setsid /bin/sleep 600 & echo $!; echo $$; echo all; wait"
    async with client.exec(grant, "sh", "-c", script) as stream:
        pids = await _pids(stream, 2)
        os.kill(parent_of(stream.pid), signal.SIGKILL)
        await stream.result()
        await eventually(lambda: not any(map(is_alive, pids)))


async def test_a_killed_shim_counts_for_claims(client: Client, grant: Grant, holder: Holder) -> None:
    async with client.exec(
        grant, "sh", "-c", "setsid sleep 600 & echo $!; echo $$; echo all; wait"
    ) as stream:
        pids = await _pids(stream, 2)
        shim = parent_of(stream.pid)
        claiming = asyncio.create_task(client.claim(await holder.next(1)))
        os.kill(shim, signal.SIGKILL)
        await claiming
        assert not any(map(is_alive, pids))


async def test_a_killed_fork_server_is_replaced_and_its_shims_go_on(client: Client, grant: Grant) -> None:
    async with client.exec(grant, "cat") as stream:
        fork_server = parent_of(parent_of(stream.pid))
        os.kill(fork_server, signal.SIGKILL)
        await eventually(lambda: not is_alive(fork_server))
        for _ in range(3):
            assert (await client.exec(grant, "echo", "new").run()).stdout == b"new\n"
        await stream.write(b"still here\n")
        await stream.read_until(b"still here")


async def test_an_exec_that_was_refused_before_it_was_made_never_runs(bench: Bench, tmp_path: Path) -> None:
    execs = Execs()
    which = execs.register(SessionKey("p", "s"), "w", 1)
    which.end(Cancelled())
    process = bench.spawn()
    execs.attach(which, process)
    with pytest.raises(StartFailed):
        await bench.start(process, "touch", "ran")
    await execs.until_gone([which])
    assert not (tmp_path / "ran").exists()
    assert execs.all() == []


async def test_a_shim_that_dies_under_a_large_request(bench: Bench) -> None:
    process = bench.spawn()
    environment = {f"V{number}": "x" * 100_000 for number in range(200)}
    starting = asyncio.create_task(process.start(("/bin/true",), environment, terminal=False))
    await asyncio.sleep(0)
    await kill_marked(lambda marker: marker.instance == bench.marker.instance)
    with pytest.raises(StartFailed):
        await starting


async def test_markers_tell_starts_and_instances_apart() -> None:
    mine = Marker("d", "i", "1")
    assert mine.is_predecessor(Marker("d", "i", "0", "exec_1"))
    for other in (mine.of("exec_1"), Marker("d", "j", "0"), Marker("e", "i", "0")):
        assert not mine.is_predecessor(other)
    environ = b"A=1\0MOORAGE_EXEC=d/i/1/exec_1\0B=2\0"
    assert Marker.read(environ) == mine.of("exec_1")
    assert Marker.read(b"") is None
    assert Marker.read(b"MOORAGE_EXEC=not/ours\0") is None
    assert Marker.read(b"XMOORAGE_EXEC=d/i/1/e\0") is None
