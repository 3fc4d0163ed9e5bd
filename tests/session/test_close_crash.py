"""A replica killed at any step of closing leaves the rest to the next one (S1, W2)."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from moorage.common.v1 import provision_pb2, turn_pb2
from moorage.owner.v1 import lease_pb2
from moorage.runner.v1 import runner_pb2
from moorage.session.v1 import session_pb2

from services.common.channels import open_channel
from services.common.errors import MoorageError, Unavailable
from services.session.commands import CommandOutcome
from tests.conditions import eventually
from tests.session.clients import Client
from tests.session.desks import Desk, Holder
from tests.session.fake_runners import FakeRunner, fake_runner
from tests.session.leasing import Taker
from tests.session.places import Places, running_session
from tests.session.processes import session_process
from tests.session.stops import all_commands

STEPS = {
    "s0": "session.close_session.after_commit",
    "s1": "session.close.after_stop",
    "s2": "session.close.after_end_runtime",
    "s3": "session.close.after_delete_workspace",
    "s4": "session.close.before_closed",
}


class Runner:
    """Holds sessions, each with a running turn t1, and does as it is told."""

    def __init__(self, fake: FakeRunner, desk: Desk, taker: Taker) -> None:
        self._fake = fake
        self._desk = desk
        self._taker = taker
        self._holders: dict[str, Holder] = {}
        self._leases: dict[str, lease_pb2.Lease] = {}
        self.order: dict[str, list[str]] = {}
        fake.stop_act, fake.end_act = self._stop, self._end

    async def begin(self, session_id: str) -> None:
        taken = await self._taker.session(session_id, self._fake.holder, endpoint=self._fake.endpoint)
        self._leases[session_id], self.order[session_id] = taken.lease, []
        await self._desk.turn("t1", session_id)
        self._holders[session_id] = self._desk.holder(session_id, name=self._fake.holder)
        await self._holders[session_id].begin()

    async def _stop(self, request: runner_pb2.DeliverStopRequest) -> None:
        self.order[request.session_id].append("stop")
        await self._holders[request.session_id].finish(
            state=turn_pb2.TURN_STATE_STOPPED,
            end_reason=turn_pb2.END_REASON_USER_STOP,
            stop_method=turn_pb2.STOP_METHOD_AGENT_CONFIRMED,
        )

    async def _end(self, request: runner_pb2.EndRuntimeRequest) -> None:
        self.order[request.session_id].append("end runtime")
        await self._taker.release(self._leases[request.session_id])


@contextlib.asynccontextmanager
async def served(places: Places) -> AsyncIterator[Client]:
    async with running_session(places) as replica, open_channel(replica.endpoint) as channel:
        yield Client(channel)


async def close_until_killed(places: Places, session_id: str) -> None:
    async with (
        session_process(places, MOORAGE_FAILPOINTS=f"{STEPS[session_id]}=kill") as endpoint,
        open_channel(endpoint) as channel,
    ):
        with contextlib.suppress(Unavailable):
            await Client(channel).close(session_id)

        async def is_dead() -> bool:
            try:
                await Client(channel, patience=1.0).get(session_id)
            except MoorageError:
                return True
            return False

        await eventually(is_dead, within=20)


@pytest.mark.timeout(120)
async def test_a_replica_killed_at_any_step_leaves_the_rest_to_the_next_start(
    places: Places, desk: Desk
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
            await close_until_killed(places, session_id)
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
