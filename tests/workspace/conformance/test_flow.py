"""What goes in and comes out, with each provider: whole, in order, in bounded memory, whoever is slow (W6)."""

from __future__ import annotations

import asyncio
import hashlib
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from services.workspace.exec.input import Stdin
from services.workspace.exec.output import Channel, copy_output
from services.workspace.exec.process import Process
from tests.conditions import eventually
from tests.workspace.conformance.places import PATH, Place, finish, read_until, start
from tests.workspace.processes import appears, with_argument

MEBIBYTE = 1024 * 1024
COUNTING = "i=0; while :; do i=$((i+1)); echo $i >&2; done"


async def _feed(process: Process, data: bytes, *, terminal: bool = False) -> None:
    """All of it, and the end of input."""
    stdin = Stdin(process.streams.stdin, terminal=terminal, may_write=lambda: True)
    async with asyncio.TaskGroup() as group:
        group.create_task(stdin.run())
        for at in range(0, len(data), 100_000):
            await stdin.put(data[at : at + 100_000])
        stdin.close()


async def test_ten_mebibytes_both_ways_through_a_slow_reader(place: Place) -> None:
    data = os.urandom(10 * MEBIBYTE)
    digest, size = hashlib.sha256(), 0
    process = await start(place, "cat")

    async def take(_: Channel, piece: bytes) -> None:
        nonlocal size
        digest.update(piece)
        size += len(piece)
        await asyncio.sleep(0)

    async with asyncio.TaskGroup() as group:
        group.create_task(_feed(process, data))
        await copy_output(process.streams, process.ended, take)
    assert (size, digest.digest()) == (len(data), hashlib.sha256(data).digest())
    assert (await process.ended).exit_code == 0


async def test_input_that_was_there_before_the_start(place: Place) -> None:
    process = await place.spawn()
    feeding = asyncio.create_task(_feed(process, b"early\n"))
    await asyncio.sleep(0)
    await process.start(("cat",), {"PATH": PATH}, terminal=False)
    await feeding
    assert (await finish(process)).stdout == b"early\n"


async def test_input_that_nobody_reads_is_refused(place: Place) -> None:
    process = await start(place, "sh", "-c", "exec 0<&-; echo closed; sleep 600")
    await read_until(process.streams.stdout, b"closed\n")
    with pytest.raises(BrokenPipeError):
        while True:
            if not process.streams.stdin.write_now(memoryview(bytes(MEBIBYTE))):
                await process.streams.stdin.wait()


async def test_who_does_not_read_stops_the_command(place: Place) -> None:
    process = await start(place, "sh", "-c", COUNTING)
    # It stands still when what it says is read no more, and goes on when it is.
    await _standing_still(_processor_time)
    assert process.streams.stderr is not None
    numbers = (await read_until(process.streams.stderr, b"\n100000\n")).split()
    assert [int(number) for number in numbers[:1000]] == list(range(1, 1001))


async def test_a_command_that_does_not_read_stops_its_caller(place: Place) -> None:
    process = await start(place, "sleep", "600")
    sent = 0
    while count := process.streams.stdin.write_now(memoryview(bytes(100_000))):
        sent += count
        assert sent < 2 * MEBIBYTE, "it was buffered somewhere"
    assert sent > 0


async def test_what_a_dead_command_said_is_read_afterwards(place: Place) -> None:
    process = await start(place, "sh", "-c", "head -c 50000 /dev/zero; echo the end >&2; exit 3")
    await asyncio.wait({process.ended})
    ran = await finish(process)
    assert (ran.stdout, ran.stderr, ran.outcome.exit_code) == (bytes(50_000), b"the end\n", 3)


async def test_a_death_does_not_wait_for_who_does_not_read(place: Place, tag: str) -> None:
    process = await start(place, "sh", "-c", f"yes & sleep {tag}")
    await appears(tag)
    process.kill()
    async with asyncio.timeout(10):
        assert (await process.ended).killed


async def test_a_terminal(place: Place) -> None:
    script = "stty size; read x; stty size; read y; exit 6"
    process = await start(place, "sh", "-c", script, terminal=(100, 30))
    assert process.streams.has_terminal
    await read_until(process.streams.stdout, b"30 100\r\n")
    process.resize(50, 20)
    process.streams.stdin.write_now(memoryview(b"x\n"))
    await read_until(process.streams.stdout, b"20 50\r\n")
    process.streams.stdin.write_now(memoryview(b"\x04"))
    assert (await process.ended).exit_code == 6


async def test_a_terminal_tells_its_processes_of_a_new_size(place: Place) -> None:
    script = 'trap "stty size; exit 0" WINCH; echo ready; while :; do sleep 0.01; done'
    process = await start(place, "sh", "-c", script, terminal=(80, 24))
    await read_until(process.streams.stdout, b"ready")
    process.resize(81, 25)
    assert b"25 81" in (await finish(process)).stdout


async def test_a_terminals_interrupt_is_a_signal(place: Place) -> None:
    process = await start(place, "sleep", "600", terminal=(80, 24))
    process.streams.stdin.write_now(memoryview(b"\x03"))
    assert (await process.ended).signal == 2


def _processor_time() -> int:
    """Of what counts."""
    total = 0
    for pid in with_argument(COUNTING):
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        total += int(fields[11]) + int(fields[12])
    return total


async def _standing_still(value: Callable[[], int]) -> None:
    """Until it is something and has been the same for a while."""
    last, same = value(), 0

    def is_still() -> bool:
        nonlocal last, same
        current = value()
        same = same + 1 if current == last > 0 else 0
        last = current
        return same > 50

    await eventually(is_still, within=30.0)
