"""A whole replica: what is started is dispatched, and what its runner leaves behind is ended."""

from __future__ import annotations

import asyncio

import grpc
from moorage.common.v1 import turn_pb2
from moorage.runner.v1 import runner_pb2
from moorage.session.v1 import session_pb2

from services.common.channels import open_channel
from services.session.server import SessionReplica
from tests.conditions import eventually
from tests.session.clients import Client
from tests.session.fake_runners import fake_runner
from tests.session.holders import Holder
from tests.session.leasing import Taker
from tests.session.places import Places


async def test_the_turn_of_a_runner_that_died_is_lost_and_the_next_one_runs(
    places: Places, replica: SessionReplica, client: Client
) -> None:
    async with (
        open_channel(places.owner_address) as owner,
        open_channel(replica.journal_endpoint) as journal,
        fake_runner("one") as runner,
    ):
        taker = Taker(owner)
        await taker.runner("one", runner.endpoint)

        async def begin_and_die(request: runner_pb2.DispatchTurnRequest) -> None:
            answer = await taker.session(request.session_id, "one/1", endpoint=runner.endpoint, ttl=2.0)
            await Holder(journal, request.session_id, answer.grant).begin(request.turn_id)

        runner.act = begin_and_die
        session = await client.create()
        async with asyncio.timeout(2.0 + 3.0 + 2.0):
            events = [event async for event in client.run(session.session_id)]
        lost = events[-1].ended
        assert (lost.state, lost.end_reason) == (
            turn_pb2.TURN_STATE_LOST,
            turn_pb2.END_REASON_LEASE_LOST,
        )
        kinds = [event.record.body.WhichOneof("body") for event in events if event.HasField("record")]
        assert kinds == ["user_message", "turn_started", "error", "turn_ended"]
        assert lost.metadata.runner_id == "one/1"

        runner.act = None
        turn = await client.start(session.session_id)
        await eventually(lambda: f"{session.session_id}/{turn.turn_id}" in runner.turns)
        ended = await run_to_its_end(owner, journal, turn)
        assert ended.state == turn_pb2.TURN_STATE_COMPLETED
        assert (await client.get_turn(session.session_id, turn.turn_id)) == ended


async def run_to_its_end(
    owner: grpc.aio.Channel, journal: grpc.aio.Channel, turn: session_pb2.Turn
) -> session_pb2.Turn:
    holder = await Holder.acquire(owner, journal, turn.session_id)
    await holder.begin(turn.turn_id)
    await holder.say(turn.turn_id, "done")
    return await holder.complete(turn.turn_id, 1)


async def test_a_started_turn_is_offered_at_once(
    places: Places, replica: SessionReplica, client: Client
) -> None:
    async with open_channel(places.owner_address) as owner, fake_runner("one") as runner:
        await Taker(owner).runner("one", runner.endpoint)
        session = await client.create()
        for number in range(10):
            turn = await client.start(session.session_id, turn_id=f"t{number}")
            await eventually(lambda turn=turn: f"{session.session_id}/{turn.turn_id}" in runner.turns)  # type: ignore[misc]
            async with open_channel(replica.journal_endpoint) as journal:
                answer = await Taker(owner).session(session.session_id, f"one/{number}")
                holder = Holder(journal, session.session_id, answer.grant)
                begun = await holder.begin(turn.turn_id)
                assert begun.previous_turn_id == (f"t{number - 1}" if number else "")
                await holder.complete(turn.turn_id)
                await Taker(owner).release(answer.lease)
