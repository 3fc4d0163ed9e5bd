"""A replica killed at any step of a deletion leaves the rest to the next one (S1, S2, W2)."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest
from moorage.common.v1 import provision_pb2

from services.common.channels import open_channel
from services.common.errors import AlreadyExists, NotFound
from tests.session.clients import Client
from tests.session.crashing import Runner, served, until_killed
from tests.session.desks import Desk
from tests.session.fake_runners import fake_runner
from tests.session.leasing import Taker
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
    roots: dict[str, Path] = {}
    async with served(places) as client:
        for session_id in STEPS:
            made = await client.create(
                session_id=session_id, provision=provision_pb2.ProvisionSpec(), wait_ready=True
            )
            roots[session_id] = Path(made.binding.local.directory)
    async with open_channel(places.owner_address) as owner, fake_runner("one") as fake:
        runner = Runner(fake, desk, Taker(owner))
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
