"""A replica killed at any step of a deletion leaves the rest to the next one (S1, S2, W2)."""

from __future__ import annotations

from functools import partial

import pytest

from services.common.errors import AlreadyExists, NotFound
from tests.session.clients import Client
from tests.session.crashing import provisioned, running, served, until_killed
from tests.session.desks import Desk
from tests.session.places import Places
from tests.session.tables import remains, tombstones

STEPS = {
    "s0": "session.delete_session.after_commit",
    "s1": "session.close.after_stop",
    "s2": "session.close.after_end_runtime",
    "s3": "session.close.after_delete_workspace",
    "s4": "session.delete.before_gone",
    "s5": "session.delete.after_gone",
    "s6": "session.delete.after_batch",
}


@pytest.mark.timeout(180)
async def test_a_replica_killed_at_any_step_leaves_the_rest_to_the_next_start(
    places: Places, desk: Desk, database_url: str
) -> None:
    roots = await provisioned(places, STEPS)
    async with running(places, desk) as runner:
        for session_id, root in roots.items():
            await runner.begin(session_id)
            call = partial(Client.delete, session_id=session_id, request_id="r1")
            await until_killed(places, STEPS[session_id], call)
            async with served(places) as client:
                repeated = await client.delete(session_id, request_id="r1", wait=True)
                assert not repeated.HasField("session"), session_id
                with pytest.raises(NotFound):
                    await client.get(session_id)
                with pytest.raises(AlreadyExists):
                    await client.create(session_id=session_id)
            assert runner.order[session_id] == ["stop", "end runtime"]
            assert await remains(database_url, session_id) == {"sessions": 1, "request_ids": 1}
            assert not root.exists()
    assert await tombstones(database_url) == dict.fromkeys(STEPS, 1)
