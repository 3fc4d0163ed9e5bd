"""A replica killed at any step of closing leaves the rest to the next one (S1, W2)."""

from __future__ import annotations

from functools import partial

import pytest
from moorage.common.v1 import turn_pb2
from moorage.session.v1 import session_pb2

from services.session.commands import CommandOutcome
from tests.session.clients import Client
from tests.session.crashing import provisioned, running, served, until_killed
from tests.session.desks import Desk
from tests.session.places import Places
from tests.session.stops import all_commands

STEPS = {
    "s0": "session.close_session.after_commit",
    "s1": "session.close.after_stop",
    "s2": "session.close.after_end_runtime",
    "s3": "session.close.after_delete_workspace",
    "s4": "session.close.before_closed",
}


@pytest.mark.timeout(120)
async def test_a_replica_killed_at_any_step_leaves_the_rest_to_the_next_start(
    places: Places, desk: Desk
) -> None:
    roots = await provisioned(places, STEPS)
    async with running(places, desk) as runner:
        for session_id, root in roots.items():
            await runner.begin(session_id)
            await until_killed(places, STEPS[session_id], partial(Client.close, session_id=session_id))
            async with served(places) as client:
                assert (await client.get(session_id)).state != session_pb2.SESSION_STATE_OPEN
                closed = await client.close(session_id, wait=True)
                assert closed.state == session_pb2.SESSION_STATE_CLOSED, session_id
                turn = await client.get_turn(session_id, "t1")
            assert turn.end_reason == turn_pb2.END_REASON_CLOSED
            (command,) = await all_commands(desk, session_id)
            assert command.outcome is CommandOutcome.STOPPED
            kinds = [record.kind for record in await desk.transcript(session_id)]
            assert kinds == ["user_message", "turn_started", "turn_ended"]
            assert runner.order[session_id] == ["stop", "end runtime"]
            assert not root.exists()
