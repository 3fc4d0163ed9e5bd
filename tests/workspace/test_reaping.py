"""Killing what a command started since a mark, and nothing else, through a real fork server (S8)."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from moorage.common.v1.grant_pb2 import Grant
from moorage.workspace.v1 import workspace_pb2

from services.common.errors import InvalidArgument
from services.workspace.exec.forkserver import ForkServer
from services.workspace.exec.marker import Marker
from services.workspace.exec.process import Process, ProcessLost
from tests.conditions import eventually
from tests.workspace.instances import Client, Holder, Machine
from tests.workspace.processes import is_alive

# Does what it reads; each line of `pids` is a process that it started.
COMMAND = 'while read -r line; do eval "$line"; done'


class Shell:
    """A command that starts processes when it is told to."""

    def __init__(self, process: Process, pid: int, directory: Path) -> None:
        self.process = process
        self.pid = pid
        self._directory = directory

    async def does(self, script: str) -> list[int]:
        """The processes that the script named in its file `pids`, after it ran."""
        written, done = self._directory / "pids", self._directory / "done"
        line = f"{script.strip()}; : > done\n".replace("\n", " ", script.strip().count("\n"))
        self.process.streams.stdin.write_now(memoryview(line.encode()))
        await eventually(done.exists, what=f"{script!r} ran")
        done.unlink()
        pids = [int(word) for word in written.read_text().split()]
        written.unlink()
        return pids


@pytest.fixture
async def shell(tmp_path: Path) -> AsyncIterator[Shell]:
    """It runs; killed in the end."""
    server = ForkServer()
    server.prepare(Marker("deployment", f"test-{os.getpid()}", "1"))
    directory = os.open(tmp_path, os.O_PATH)
    process = server.spawn(directory, None)
    os.close(directory)
    pid = await process.start(("/bin/sh", "-c", COMMAND), {"PATH": os.environ["PATH"]}, terminal=False)
    yield Shell(process, pid, tmp_path)
    process.kill()
    await asyncio.wait({process.ended})
    process.streams.close()
    await server.close()


IN_GROUP = "sleep 600 & echo $! >> pids"
LEFT_GROUP = "setsid sleep 600 & echo $! >> pids"
CLEARED = "env -i setsid /bin/sleep 600 & echo $! >> pids"
ORPHAN = "sh -c 'setsid sleep 600 & echo $! >> pids'"
DEEP = "sh -c 'echo $$ >> pids; sleep 600 & echo $! >> pids; wait' & sleep 0.1"


async def test_younger_processes_die_wherever_they_went_and_older_ones_live(shell: Shell) -> None:
    older = await shell.does(f"{IN_GROUP}; {LEFT_GROUP}; {ORPHAN}")
    await shell.process.mark()
    younger = await shell.does(f"{IN_GROUP}; {LEFT_GROUP}; {CLEARED}; {ORPHAN}; {DEEP}")
    assert len(younger) == 6
    assert all(map(is_alive, [*older, *younger]))
    assert await shell.process.reap() >= 6
    assert not any(map(is_alive, younger))
    assert all(map(is_alive, [shell.pid, *older]))


async def test_a_newer_mark_counts_and_reaping_twice_finds_nothing(shell: Shell) -> None:
    await shell.process.mark()
    spared = await shell.does(LEFT_GROUP)
    await shell.process.mark()
    younger = await shell.does(IN_GROUP)
    assert await shell.process.reap() == 1
    assert await shell.process.reap() == 0
    assert (is_alive(spared[0]), is_alive(younger[0]), is_alive(shell.pid)) == (True, False, True)


async def test_a_child_of_an_older_helper_is_younger(shell: Shell, tmp_path: Path) -> None:
    helper = await shell.does(
        "sh -c 'while :; do test -e go && break; done; sleep 600 & echo $! > born; wait' & echo $! >> pids"
    )
    await shell.process.mark()
    (tmp_path / "go").touch()
    await eventually(lambda: (tmp_path / "born").exists() and bool((tmp_path / "born").read_text()))
    born = int((tmp_path / "born").read_text())
    assert await shell.process.reap() == 1
    assert not is_alive(born)
    assert is_alive(shell.pid)
    # Nobody waits for it, it only lost what it waited for.
    await eventually(lambda: not is_alive(helper[0]))


async def test_what_multiplies_while_it_is_killed_dies(shell: Shell) -> None:
    await shell.process.mark()
    await shell.does(
        "setsid sh -c 'i=0; while [ $i -lt 200 ]; do i=$((i+1)); setsid sleep 600 & done; wait' & "
        "echo $! >> pids"
    )
    async with asyncio.timeout(20):
        assert await shell.process.reap() >= 1
        assert await shell.process.reap() == 0
    assert is_alive(shell.pid)


async def test_nobody_answers_once_the_command_has_ended(shell: Shell) -> None:
    await shell.process.mark()
    shell.process.kill()
    with pytest.raises(ProcessLost):
        await shell.process.reap()
    assert (await shell.process.ended).killed
    with pytest.raises(ProcessLost):
        await shell.process.mark()


@pytest.fixture
async def grant(client: Client, holder: Holder, machine: Machine) -> Grant:
    """Of the session whose workspace is ready."""
    await client.adopt(machine.supplied())
    return await holder.acquire()


async def test_a_caller_draws_a_line_and_has_the_younger_killed_while_output_flows(
    client: Client, grant: Grant
) -> None:
    flood = "i=0; while [ $i -lt 20000 ]; do i=$((i+1)); echo a line; done"
    script = f"read -r go; setsid sleep 600 & echo child $!; read -r go; {flood}; read -r go"
    async with client.exec(grant, "sh", "-c", script) as stream:
        await stream.send(mark=workspace_pb2.ExecMark())
        message = await stream.read()
        assert message is not None
        assert message.HasField("marked")
        await stream.write(b"go\n")
        child = int((await stream.read_until(b"\n")).split()[1])
        await stream.write(b"go\n")
        await stream.send(reap=workspace_pb2.ExecReap())
        killed = size = 0
        while not killed or size < 20_000 * 7:
            message = await stream.read()
            assert message is not None
            size += len(message.stdout)
            killed += message.reaped.killed
        assert killed == 1
        assert not is_alive(child)
        assert is_alive(stream.pid)


async def test_reaping_without_a_mark_is_refused(client: Client, grant: Grant) -> None:
    async with client.exec(grant, "cat") as stream:
        await stream.send(reap=workspace_pb2.ExecReap())
        error = (await stream.result()).error
    assert isinstance(error, InvalidArgument)
    assert [violation.field for violation in error.violations] == ["reap"]
