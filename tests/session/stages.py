"""A client, and a live runner that begins and stops what the session service asks it to."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

from moorage.runner.v1 import runner_pb2

from services.common.channels import open_channel
from services.session.server import SessionReplica
from tests.conditions import eventually
from tests.session.clients import Client
from tests.session.fake_runners import FakeRunner, fake_runner
from tests.session.holders import Holder
from tests.session.leasing import Taker
from tests.session.places import Places


@dataclass
class Stage:
    """A client, and a live runner that holds the session s1 and begins what it is offered."""

    client: Client
    runner: FakeRunner
    holder: Holder
    turns: set[str] = field(default_factory=set)

    async def begun(self, turn_id: str) -> Holder:
        """Start a turn and return its holder when it has begun."""
        await self.client.start("s1", turn_id=turn_id)
        await self.begins(turn_id)
        return self.holder

    async def begins(self, turn_id: str) -> None:
        """Return when the runner has begun the turn."""
        await eventually(lambda: turn_id in self.turns)


@contextlib.asynccontextmanager
async def staged(places: Places, replica: SessionReplica, client: Client) -> AsyncIterator[Stage]:
    """With the session s1."""
    async with (
        open_channel(places.owner_address) as owner,
        open_channel(replica.journal_endpoint) as journal,
        fake_runner("one") as runner,
    ):
        taker = Taker(owner)
        await client.create(session_id="s1")
        lease = await taker.session("s1", runner.holder, endpoint=runner.endpoint)
        stage = Stage(client, runner, Holder(journal, "s1", lease.grant))

        async def begin(request: runner_pb2.DispatchTurnRequest) -> None:
            await stage.holder.begin(request.turn_id)
            stage.turns.add(request.turn_id)

        async def confirm(request: runner_pb2.DeliverStopRequest) -> None:
            await stage.holder.stopped(request.turn_id)

        runner.act, runner.stop_act = begin, confirm
        yield stage
