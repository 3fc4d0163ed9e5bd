"""A session with a workspace of its own and a live runner that holds it, for closing and deleting it."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path

from moorage.common.v1 import provision_pb2, turn_pb2
from moorage.owner.v1 import lease_pb2
from moorage.runner.v1 import runner_pb2

from services.common.channels import open_channel
from tests.session.clients import Client
from tests.session.desks import Desk, Holder
from tests.session.fake_runners import FakeRunner, fake_runner
from tests.session.leasing import Taker
from tests.session.places import Places

PROVISION = provision_pb2.ProvisionSpec()


@dataclass
class Held:
    """A session with a workspace of its own, and the live runner that holds it; `order` is what happened."""

    client: Client
    desk: Desk
    taker: Taker
    runner: FakeRunner
    lease: lease_pb2.Lease
    holder: Holder
    root: Path
    order: list[str] = field(default_factory=list)

    async def begun(self) -> None:
        """Begin the turn t1, which is stopped when the runner is told to."""
        await self.desk.turn("t1")
        await self.holder.begin()

    async def stop(self, _: runner_pb2.DeliverStopRequest) -> None:
        """The agent confirms, whatever the Stop is for."""
        self.order.append("stop")
        await self.holder.finish(
            state=turn_pb2.TURN_STATE_STOPPED,
            end_reason=turn_pb2.END_REASON_USER_STOP,
            stop_method=turn_pb2.STOP_METHOD_AGENT_CONFIRMED,
            runtime_after=turn_pb2.RUNTIME_AFTER_WARM,
        )

    async def end(self, _: runner_pb2.EndRuntimeRequest) -> None:
        """The runtime ends and the lease is given back; so far the workspace is there."""
        assert self.root.is_dir()
        self.order.append("end runtime")
        await self.taker.release(self.lease)


@contextlib.asynccontextmanager
async def held_session(places: Places, client: Client, desk: Desk) -> AsyncIterator[Held]:
    """The session s1."""
    async with open_channel(places.owner_address) as owner, fake_runner("one") as runner:
        made = await client.create(session_id="s1", provision=PROVISION, wait_ready=True)
        taker = Taker(owner)
        lease = (await taker.session("s1", runner.holder, endpoint=runner.endpoint)).lease
        holder = desk.holder(name=runner.holder)
        held = Held(client, desk, taker, runner, lease, holder, Path(made.binding.local.directory))
        runner.stop_act, runner.end_act = held.stop, held.end
        yield held
