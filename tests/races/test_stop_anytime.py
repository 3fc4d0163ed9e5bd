"""Stops at random moments of turns with real agents: whatever they hit, one ending, nothing left, and it goes on (S8, S11)."""

from __future__ import annotations

import asyncio
import os
import random
import time
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from moorage.common.v1 import turn_pb2
from moorage.common.v1.turn_pb2 import StopMethod

from services.common.channels import open_channel
from tests.conditions import eventually
from tests.processes import is_alive
from tests.races.offsets import at
from tests.runner.holding import pid_in
from tests.runner.parts import Stack
from tests.runner.remains import Remains
from tests.runner.talks import Talks, kinds_of

pytestmark = pytest.mark.timeout(600)

ROUNDS = int(os.environ.get("RACES", "60")) // 3
SEED = int(os.environ.get("SEED", "7"))
LANES = 4
COMPLETED, STOPPED = turn_pb2.TURN_STATE_COMPLETED, turn_pb2.TURN_STATE_STOPPED
# Goes through all that a turn can be in, and leaves a process behind at each.
PROMPT = """who are you
run sleep 600 & echo $! >> children
count to 20 every 0.005
terminal sleep 0.05
run setsid sleep 600 & echo $! >> children
say the end"""


@pytest.fixture
async def stack(database_url: str, tmp_path: Path) -> AsyncIterator[Stack]:
    """All of it in this process, with one runner."""
    root = tmp_path / "root"
    root.mkdir()
    stack = Stack(database_url, root, tmp_path / "state")
    await stack.start()
    await stack.add_runner()
    yield stack
    await stack.stop()


class Lane:
    """A session whose turns are stopped, one after the other."""

    def __init__(self, talks: Talks, stack: Stack, number: int, seen: Counter[str]) -> None:
        self._talks = talks
        self._stack = stack
        self._session_id = f"s{number}"
        self._random = random.Random(f"{SEED} {number}")
        self._seen = seen

    async def run(self, rounds: int) -> None:
        await self._talks.create(self._session_id)
        # What lasts how long depends on the machine, and on what else runs there.
        lasts = {False: await self._whole("cold"), True: await self._whole("warm")}
        warm = True
        for number in range(rounds):
            warm = await self._round(f"t{number}", lasts[warm])
        turn = await self._talks.run(self._session_id, "last", "say goes on")
        assert turn.state == COMPLETED

    async def _whole(self, turn_id: str) -> float:
        """How long a turn lasts that nobody stops."""
        since = time.monotonic()
        turn = await self._talks.run(self._session_id, turn_id, PROMPT)
        assert turn.state == COMPLETED
        return time.monotonic() - since

    async def _round(self, turn_id: str, latest: float) -> bool:
        """Start, stop, see; whether the agent was kept."""
        talks, session_id = self._talks, self._session_id
        moment = time.monotonic() + self._random.uniform(0, latest)
        await talks.start(session_id, turn_id, PROMPT)
        await at(moment, talks.stop(session_id, turn_id))
        turn = await talks.ended(session_id, turn_id)
        assert turn.state in (STOPPED, COMPLETED), turn
        assert kinds_of(await talks.records(session_id, turn_id)).count("turn_ended") == 1
        method = StopMethod.Name(turn.stop_method).removeprefix("STOP_METHOD_")
        self._seen[method if turn.state == STOPPED else "COMPLETED"] += 1
        warm = turn.runtime_after == turn_pb2.RUNTIME_AFTER_WARM
        said = await talks.said(session_id, turn_id)
        if "pid " in said:
            assert is_alive(pid_in(said)) == warm, turn
        return warm


async def test_at_any_moment(stack: Stack) -> None:
    remains = Remains(stack)
    seen: Counter[str] = Counter()
    async with open_channel(stack.session.endpoint) as channel, asyncio.TaskGroup() as lanes:
        for number in range(LANES):
            lanes.create_task(Lane(Talks(channel), stack, number, seen).run(max(ROUNDS // LANES, 2)))
    print(f"\nstopped at any moment, seed {SEED}: {dict(sorted(seen.items()))}")
    children = (stack.root / "children").read_text().split()
    assert not [pid for pid in map(int, children) if is_alive(pid)]
    # Of each session at most its warm agent.
    await eventually(lambda: len(remains.execs()) <= LANES, what="nothing but warm agents lives")
    assert len(seen) > 1
