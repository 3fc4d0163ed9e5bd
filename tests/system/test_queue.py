"""A queue worked off by a warm agent: turns follow each other without a pause (T2, T3)."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from statistics import median

import pytest
from moorage.common.v1 import turn_pb2
from moorage.session.v1 import session_pb2

from tests.races.arena import arena
from tests.races.lanes import Lane

pytestmark = pytest.mark.timeout(120)

TURNS = 10
# The outbox's first back-off, after a runner that could not take a turn yet.
BACK_OFF = 0.2


async def test_queued_turns_follow_each_other_at_once(database_url: str, tmp_path: Path) -> None:
    """The slot becomes free at one replica, the turns came to the other one."""
    async with arena(database_url, tmp_path) as processes:
        await processes.replicas[0].client.create(session_id="s1")
        lane = Lane(processes.replicas, "s1")
        async with lane.watched():
            await lane.start("t0", "say working\nrun until [ -e go ]; do sleep 0.05; done")
            await lane.saw("t0", "agent_message")
            for number in range(1, TURNS):
                turn = await lane.start(f"t{number}", "say next", if_busy=session_pb2.IF_BUSY_ENQUEUE)
                assert (turn.state, turn.queue_position) == (turn_pb2.TURN_STATE_QUEUED, number)
            (processes.root / "go").touch()
            turns = [await lane.over(f"t{number}") for number in range(TURNS)]
        assert {turn.state for turn in turns} == {turn_pb2.TURN_STATE_COMPLETED}
        assert {turn.metadata.resume_kind for turn in turns[1:]} == {turn_pb2.RESUME_KIND_WARM}
        previous = [turn.metadata.previous_turn_id for turn in turns[1:]]
        assert previous == [f"t{number}" for number in range(TURNS - 1)]
        pauses = [
            (turn.begin_time.ToNanoseconds() - before.end_time.ToNanoseconds()) / 1e9
            for before, turn in pairwise(turns)
        ]
        print(f"\nfrom the end of a turn to the begin of the next: {median(pauses) * 1000:.0f} ms (median)")
        assert median(pauses) < BACK_OFF / 2
