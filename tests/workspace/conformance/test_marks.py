"""Killing what a command started since a mark, and nothing else, with each provider (S8)."""

from __future__ import annotations

import asyncio
import secrets

import pytest

from services.workspace.exec.process import Process
from tests.workspace.conformance.places import Place, read_until, start
from tests.workspace.processes import appears, with_argument

# Does what it reads, and says when it was done.
COMMAND = 'while read -r line; do eval "$line"; echo done; done'

IN_GROUP = "sleep {tag} &"
LEFT_GROUP = "setsid sleep {tag} &"
CLEARED = "env -i setsid /bin/sleep {tag} &"
ORPHAN = "sh -c 'setsid sleep {tag} &'"
DEEP = "sh -c 'sh -c \"sleep {tag}; :\"; :' &"


class Shell:
    """A command that starts processes when it is told to."""

    def __init__(self, process: Process) -> None:
        self.process = process

    async def does(self, *scripts: str) -> str:
        """Until as many processes as there are scripts sleep; for how long, by which they are known."""
        tag = f"7{secrets.randbelow(10**8):08}"
        for script in scripts:
            await self.says(script.format(tag=tag))
        await appears(tag, len(scripts))
        return tag

    async def says(self, script: str) -> None:
        """Until it was done."""
        line = script.encode() + b"\n"
        assert self.process.streams.stdin.write_now(memoryview(line)) == len(line)
        await read_until(self.process.streams.stdout, b"done\n")


@pytest.fixture
async def shell(place: Place) -> Shell:
    """It runs."""
    return Shell(await start(place, "sh", "-c", COMMAND))


async def test_younger_processes_die_wherever_they_went_and_older_ones_live(shell: Shell) -> None:
    older = await shell.does(IN_GROUP, LEFT_GROUP, ORPHAN)
    await shell.process.mark()
    younger = await shell.does(IN_GROUP, LEFT_GROUP, CLEARED, ORPHAN, DEEP)
    # Besides the sleeping ones the two shells around the last of them.
    assert await shell.process.reap() == 7
    assert with_argument(younger) == []
    assert len(with_argument(older)) == 3
    assert not shell.process.ended.done()


async def test_a_newer_mark_counts_and_reaping_twice_finds_nothing(shell: Shell) -> None:
    await shell.process.mark()
    spared = await shell.does(LEFT_GROUP)
    await shell.process.mark()
    younger = await shell.does(IN_GROUP)
    assert await shell.process.reap() == 1
    assert await shell.process.reap() == 0
    assert (len(with_argument(spared)), with_argument(younger)) == (1, [])


async def test_a_child_of_an_older_helper_is_younger(shell: Shell) -> None:
    name, tag = f"/tmp/go-{secrets.token_hex(6)}", f"7{secrets.randbelow(10**8):08}"
    older = await shell.does(IN_GROUP)
    await shell.says(f"sh -c 'while ! test -e {name}; do sleep 0.01; done; rm {name}; sleep {tag}; :' &")
    await shell.process.mark()
    await shell.says(f": > {name}")
    await appears(tag)
    assert await shell.process.reap() >= 1
    assert with_argument(tag) == []
    assert len(with_argument(older)) == 1


async def test_what_multiplies_while_it_is_killed_dies(shell: Shell) -> None:
    await shell.process.mark()
    many = "setsid sh -c 'i=0; while [ $i -lt 100 ]; do i=$((i+1)); setsid sleep {tag} & done; wait' &"
    tag = await shell.does(many)
    async with asyncio.timeout(20):
        assert await shell.process.reap() >= 1
        assert await shell.process.reap() == 0
    assert with_argument(tag) == []
    assert not shell.process.ended.done()
