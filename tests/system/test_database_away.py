"""PostgreSQL is away for longer than the leases: turns are lost, and no service has to be started again (F3, F8)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from moorage.common.v1 import turn_pb2

from services.cli.postgres.embedded import EmbeddedPostgres
from tests.conditions import eventually
from tests.processes import is_alive
from tests.runner.holding import pid_in
from tests.runner.talks import Talks, kinds_of, text_of
from tests.servers import own_server
from tests.system.repeating import repeated
from tests.system.whole import Whole
from tests.system.witness import Witness, witnessed

# Processes take their time to start on a busy machine.
pytestmark = [pytest.mark.timeout(120), *repeated]

LEASE = 2.0
SHORT = ("--lease-ttl", str(LEASE))
LOST = (turn_pb2.TURN_STATE_LOST, turn_pb2.END_REASON_LEASE_LOST)
SESSIONS = ("one", "two", "three")


@pytest.fixture
def own_postgres(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedPostgres]:
    """A server that this test may stop."""
    with own_server(tmp_path_factory) as server:
        yield server


@pytest.fixture
async def whole(own_postgres: EmbeddedPostgres, tmp_path: Path) -> AsyncIterator[Whole]:
    """Everything, with short leases."""
    async with Whole(own_postgres, tmp_path, {"workspace": SHORT, "runner": SHORT}) as whole:
        yield whole


@pytest.fixture
async def talks(whole: Whole) -> AsyncIterator[Talks]:
    """A client."""
    async with whole.talks() as talks:
        yield talks


async def working(whole: Whole, talks: Talks, session_id: str) -> int:
    """A session in the middle of a turn; its agent's pid."""
    await talks.create(session_id)
    await talks.start(session_id, "t", f"pid\ncount to 1000000 into {session_id}.log every 0.01")
    await talks.says(session_id, "t", "\n50\n")
    return pid_in(await talks.said(session_id, "t"))


async def is_lost_once(talks: Talks, witness: Witness, session_id: str) -> None:
    """With both records, as the witness saw them; what was said is what the agent counted at first."""
    await witness.ended("t", 60.0)
    turn = await talks.turn(session_id, "t")
    assert (turn.state, turn.end_reason) == LOST
    records = await talks.records(session_id, "t")
    assert dict(enumerate(records, 1)) == witness.seen
    kinds = kinds_of(records)
    assert (kinds[-2:], kinds.count("turn_ended"), kinds.count("error")) == (["error", "turn_ended"], 1, 1)
    said = [int(line) for line in text_of(records).splitlines() if line.isdigit()]
    assert said == list(range(1, len(said) + 1))


async def test_postgresql_away_for_longer_than_the_lease(whole: Whole, talks: Talks) -> None:
    pids = [await working(whole, talks, session_id) for session_id in SESSIONS]
    before = {name: process.process.pid for name, process in whole.processes.items()}
    async with (
        witnessed(talks, "one") as one,
        witnessed(talks, "two") as two,
        witnessed(talks, "three") as three,
    ):
        whole.postgres.stop()
        stopped_at = time.monotonic()
        await asyncio.gather(*(dead_in_time(pid) for pid in pids))
        await eventually(lambda: time.monotonic() > stopped_at + 2 * LEASE, what="every lease has ended")
        whole.postgres.start()
        started_at = time.monotonic()
        for session_id, witness in zip(SESSIONS, (one, two, three), strict=True):
            await is_lost_once(talks, witness, session_id)
    print(f"all lost turns had ended {time.monotonic() - started_at:.2f} s after the database was back")
    for session_id in SESSIONS:
        turn = await talks.run(session_id, "next", "say here again")
        assert turn.state == turn_pb2.TURN_STATE_COMPLETED
        assert turn.metadata.token > (await talks.turn(session_id, "t")).metadata.token
        assert await talks.said(session_id, "next") == "here again"
        assert kinds_of(await talks.records(session_id)).count("turn_ended") == 2
    assert all(process.process.returncode is None for process in whole.processes.values())
    assert before == {name: process.process.pid for name, process in whole.processes.items()}


async def dead_in_time(pid: int) -> None:
    """An agent does not outlive its lease."""
    await eventually(lambda: not is_alive(pid), within=LEASE + 1.0, what=f"the agent {pid} is dead")
