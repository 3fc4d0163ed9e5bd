"""Exec under load: whole, in order, and in bounded memory, whoever is slow (W6)."""

from __future__ import annotations

import asyncio
import hashlib
import os
from pathlib import Path

import pytest
from moorage.common.v1.grant_pb2 import Grant

from tests.conditions import eventually
from tests.workspace.instances import Client, Holder, Machine
from tests.workspace.processes import is_alive

MEBIBYTE = 1024 * 1024

# Writes mebibytes of which each is its number repeated, and notes each one written in a file.
WRITER = """
import sys
for number in range(int(sys.argv[1])):
    sys.stdout.buffer.write(number.to_bytes(4, "big") * (1024 * 256))
    sys.stdout.flush()
    open("written", "w").write(str(number + 1))
"""


@pytest.fixture
async def grant(client: Client, holder: Holder, machine: Machine) -> Grant:
    """Of the session whose workspace is ready."""
    await client.adopt(machine.supplied())
    return await holder.acquire()


async def test_ten_mebibytes_both_ways_through_a_slow_reader(client: Client, grant: Grant) -> None:
    data = os.urandom(10 * MEBIBYTE)
    async with client.exec(grant, "cat") as stream, asyncio.TaskGroup() as group:

        async def write() -> None:
            await stream.write(data)
            await stream.close_stdin()

        group.create_task(write())
        digest, pieces = hashlib.sha256(), 0
        while (message := await stream.read()) is not None:
            digest.update(message.stdout)
            pieces += 1
            await asyncio.sleep(0)
    assert digest.digest() == hashlib.sha256(data).digest()
    assert pieces > 10 * 16


async def test_who_does_not_read_stops_the_command(client: Client, grant: Grant, machine: Machine) -> None:
    written = machine.supplied() / "written"
    async with client.exec(grant, "python3", "-c", WRITER, "256") as stream:
        await _standstill(written)
        assert int(written.read_text()) < 64, "it was buffered somewhere"
        received = bytearray()
        while len(received) < 256 * MEBIBYTE and (message := await stream.read()) is not None:
            received += message.stdout
    assert [received[at * MEBIBYTE] * 256**3 + received[at * MEBIBYTE + 3] for at in range(256)] == list(
        range(256)
    )


async def test_a_command_that_does_not_read_stops_its_caller(client: Client, grant: Grant) -> None:
    async with client.exec(grant, "sleep", "600") as stream, asyncio.TaskGroup() as group:
        sent = 0

        async def send() -> None:
            nonlocal sent
            while sent < 64:
                await stream.write(b"\0" * MEBIBYTE)
                sent += 1

        sending = group.create_task(send())
        await _unchanging(lambda: sent)
        assert sent < 32, "it was buffered somewhere"
        sending.cancel()
    await eventually(lambda: not is_alive(stream.pid))


async def test_what_waits_for_the_command_does_not_hold_up_signals(client: Client, grant: Grant) -> None:
    async with client.exec(grant, "sleep", "600") as stream:
        await stream.write(b"\0" * (MEBIBYTE + 60_000))
        await stream.signal("SIGTERM")
        assert (await stream.result()).how == ("signal", "SIGTERM")


async def test_output_written_just_before_the_end_arrives(client: Client, grant: Grant) -> None:
    for _ in range(20):
        result = await client.exec(grant, "sh", "-c", "head -c 60000 /dev/zero; echo end; exit 1").run()
        assert len(result.stdout) == 60_004
        assert result.how == ("exit_code", 1)


async def test_the_end_is_told_to_a_caller_who_still_writes(client: Client, grant: Grant) -> None:
    async with client.exec(grant, "sh", "-c", "exit 3") as stream:
        await eventually(lambda: not is_alive(stream.pid))
        # To gRPC for Python a call that is over fails by a write, with all that was not read.
        for _ in range(500):
            await stream.write(b"x")
        assert (await stream.result()).how == ("exit_code", 3)


async def test_output_held_open_by_a_stranger_does_not_delay_the_end(
    client: Client, grant: Grant, machine: Machine
) -> None:
    # A process outside of the exec opens the pipe through /proc, and keeps it.
    async with client.exec(grant, "sh", "-c", "echo here; read x; echo gone; exit 2") as stream:
        await stream.read_until(b"here")
        stranger = os.open(f"/proc/{stream.pid}/fd/1", os.O_WRONLY)
        try:
            await stream.write(b"\n")
            result = await stream.result()
        finally:
            os.close(stranger)
    assert (result.stdout, result.how) == (b"gone\n", ("exit_code", 2))


async def test_fifty_at_the_same_time(client: Client, grant: Grant) -> None:
    data = os.urandom(100_000)
    results = await asyncio.gather(*(client.exec(grant, "cat").run(data) for _ in range(50)))
    assert all(result.stdout == data and result.how == ("exit_code", 0) for result in results)


async def test_a_caller_that_vanishes_kills_the_group(client: Client, grant: Grant, machine: Machine) -> None:
    pids = machine.supplied() / "pids"
    script = (
        "echo $$ >> pids; sleep 600 & echo $! >> pids; setsid sh -c 'echo $$ >> pids; exec sleep 600' & wait"
    )
    async with client.exec(grant, "sh", "-c", script):
        await eventually(lambda: pids.exists() and len(_pids(pids)) == 3)
        assert all(map(is_alive, _pids(pids)))
    await eventually(lambda: not any(map(is_alive, _pids(pids))))


async def test_a_caller_that_vanishes_before_the_start_leaves_nothing(
    client: Client, grant: Grant, machine: Machine
) -> None:
    ran = machine.supplied() / "ran"
    script = "echo $$ >> ran; exec sleep 600"
    for _ in range(20):
        call = client.exec(grant, "sh", "-c", script)
        starting = asyncio.create_task(call.__aenter__())
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        starting.cancel()
        await asyncio.wait({starting})
        await call.__aexit__()
    # One that is awaited to its end comes after whatever the others still did.
    await client.exec(grant, "true").run()
    await client.claim(grant)
    assert not any(map(is_alive, _pids(ran) if ran.exists() else []))


async def _standstill(path: Path) -> None:
    await _unchanging(lambda: path.read_text() if path.exists() else "")


async def _unchanging(value: object) -> None:
    """Until a value has been the same for half a second, having changed at least once."""
    assert callable(value)
    first, last, since = value(), value(), asyncio.get_running_loop().time()

    def is_still() -> bool:
        nonlocal last, since
        now = asyncio.get_running_loop().time()
        if (current := value()) != last:
            last, since = current, now
        return last != first and now - since > 0.5

    await eventually(is_still, within=30.0)


def _pids(path: Path) -> list[int]:
    return [int(line) for line in path.read_text().split()]
