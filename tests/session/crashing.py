"""Sessions whose closing or deletion is cut short by the death of the replica that does it."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from pathlib import Path

from moorage.common.v1 import provision_pb2, turn_pb2
from moorage.owner.v1 import lease_pb2
from moorage.runner.v1 import runner_pb2

from services.common.channels import open_channel
from services.common.errors import MoorageError, Unavailable
from tests.conditions import eventually
from tests.session.clients import Client
from tests.session.desks import Desk, Holder
from tests.session.fake_runners import FakeRunner, fake_runner
from tests.session.leasing import Taker
from tests.session.places import Places, running_session
from tests.session.processes import session_process


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
async def running(places: Places, desk: Desk) -> AsyncIterator[Runner]:
    """A runner that holds nothing yet."""
    async with open_channel(places.owner_address) as owner, fake_runner("one") as fake:
        yield Runner(fake, desk, Taker(owner))


async def provisioned(places: Places, session_ids: Iterable[str]) -> dict[str, Path]:
    """Sessions in workspaces that were made for them: the directory of each."""
    roots: dict[str, Path] = {}
    async with served(places) as client:
        for session_id in session_ids:
            made = await client.create(
                session_id=session_id, provision=provision_pb2.ProvisionSpec(), wait_ready=True
            )
            roots[session_id] = Path(made.binding.local.directory)
    return roots


@contextlib.asynccontextmanager
async def served(places: Places) -> AsyncIterator[Client]:
    async with running_session(places) as replica, open_channel(replica.endpoint) as channel:
        yield Client(channel)


async def until_killed(places: Places, step: str, call: Callable[[Client], Awaitable[object]]) -> None:
    """Make a call of a replica that dies at this step, and wait until it is dead."""
    async with (
        session_process(places, MOORAGE_FAILPOINTS=f"{step}=kill") as endpoint,
        open_channel(endpoint) as channel,
    ):
        with contextlib.suppress(Unavailable):
            await call(Client(channel))

        async def is_dead() -> bool:
            try:
                await Client(channel, patience=1.0).list_sessions()
            except MoorageError:
                return True
            return False

        await eventually(is_dead, within=20)
