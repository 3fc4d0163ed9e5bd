"""Whoever claims a workspace meets nothing of the one before, whatever that has done to those who kill it (F6)."""

from __future__ import annotations

import secrets

import pytest

from tests.workspace.docker.yard import Yard, make
from tests.workspace.instances import Holder
from tests.workspace.processes import FORK_BOMB, appears, with_argument

DEMO = "moorage-test:demo"
# The first process of a container is of the same user as its commands.
DISARMS = """
import os, resource, signal, sys, time
resource.prlimit(1, resource.RLIMIT_NOFILE, (0, 0))
helper = os.getppid()
if os.fork() == 0:
    os.setsid()
    os.kill(helper, signal.SIGSTOP)
    writes = "while True: open('alive', 'a').write('x')"
    os.execve('/usr/bin/python3', ['python3', '-c', writes, sys.argv[1]], {})
time.sleep(1000)
"""


@pytest.fixture
def tag() -> str:
    """An argument of the processes of a test: no others have it."""
    return f"6{secrets.randbelow(10**8):08}"


@pytest.mark.parametrize(("program", "count"), [(DISARMS, 2), (FORK_BOMB, 20)], ids=["disarms", "multiplies"])
async def test_nothing_is_left_when_a_claim_is_answered(
    yard: Yard, holder: Holder, tag: str, program: str, count: int
) -> None:
    async with yard.running(docker_images=(DEMO,)) as (client, _):
        await make(client)
        async with client.exec(await holder.acquire(), "python3", "-c", program, tag):
            await appears(tag, count)
            await client.claim(await holder.next(1), timeout=60)
            assert with_argument(tag) == []
        ran = await client.exec(await holder.renew(2), "echo", "works").run()
        assert ran.stdout == b"works\n"
