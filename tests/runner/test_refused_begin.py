"""A runner that may not begin under its token lets go of all it has, and comes back with a higher one (T4, S6)."""

from __future__ import annotations

import pytest
from moorage.common.v1 import turn_pb2

from tests.conditions import eventually
from tests.databases import execute
from tests.processes import is_alive
from tests.runner.holding import pid_in
from tests.runner.parts import Stack
from tests.runner.remains import Remains
from tests.runner.talks import Talks

COMPLETED = turn_pb2.TURN_STATE_COMPLETED
WARM, LOADED = turn_pb2.RUNTIME_AFTER_WARM, turn_pb2.RESUME_KIND_LOADED


@pytest.mark.parametrize(
    "change",
    [
        # A session that was taken over from the token that parked here.
        "UPDATE session.sessions SET begin_above = token",
        # And one whose taker has written already.
        "UPDATE session.sessions SET begin_above = token, token = token + 1",
    ],
)
async def test_a_parked_agent_ends_and_the_turn_begins_under_a_higher_token(
    stack: Stack, talks: Talks, change: str
) -> None:
    await stack.add_runner()
    await talks.create("s")
    first = await talks.run("s", "one", "who are you\nremember the lighthouse")
    assert first.runtime_after == WARM
    pid = pid_in(await talks.said("s", "one"))
    await execute(stack.database_url, change)
    turn = await talks.run("s", "two", "who are you\nrecall")
    assert (turn.state, turn.metadata.resume_kind) == (COMPLETED, LOADED)
    assert turn.metadata.token > first.metadata.token
    assert "the lighthouse" in await talks.said("s", "two")
    assert pid_in(await talks.said("s", "two")) != pid
    assert not is_alive(pid)
    remains = Remains(stack)
    await eventually(lambda: len(remains.execs()) == 1, what="one agent is kept")
