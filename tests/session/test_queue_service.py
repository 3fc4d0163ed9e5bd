"""Queue and commands over gRPC, on whole replicas with real neighbours (T2)."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from moorage.common.v1 import turn_pb2
from moorage.session.v1 import session_pb2

from services.common.channels import open_channel
from services.common.errors import InvalidArgument, NotFound, ResourceExhausted
from tests.session.clients import Client
from tests.session.places import Places, running_session
from tests.session.stages import Stage

ENQUEUE, INTERRUPT = session_pb2.IF_BUSY_ENQUEUE, session_pb2.IF_BUSY_INTERRUPT
QUEUED, ADMITTED = turn_pb2.TURN_STATE_QUEUED, turn_pb2.TURN_STATE_ADMITTED


async def test_who_runs_a_queued_turn_is_told_so_and_hears_when_it_runs(stage: Stage, places: Places) -> None:
    """Also at another replica than the one at which its slot became free."""
    client, holder = stage.client, await stage.begun("t1")
    async with (
        running_session(places, watch_heartbeat=0.3) as other,
        open_channel(other.endpoint) as channel,
    ):
        events = Client(channel).run("s1", turn_id="t2", if_busy=ENQUEUE)
        first = (await anext(events)).admitted
        assert (first.state, first.queue_position, first.HasField("admit_time")) == (QUEUED, 1, False)
        assert (await anext(events)).HasField("heartbeat")
        [waiting] = (await client.get("s1")).queue
        assert (waiting.turn_id, waiting.interrupt) == ("t2", False)
        assert (waiting.create_time, waiting.expire_time) == (first.create_time, first.queue_expire_time)
        await holder.complete("t1")
        await stage.begins("t2")
        await holder.complete("t2")
        told = [event async for event in events if not event.HasField("heartbeat")]
        kinds = [event.record.body.WhichOneof("body") for event in told[:-1]]
        assert kinds == ["user_message", "turn_started", "turn_ended"]
        ended = told[-1].ended
        assert (ended.state, ended.metadata.previous_turn_id) == (turn_pb2.TURN_STATE_COMPLETED, "t1")
        assert ended.admit_time.ToNanoseconds() > ended.create_time.ToNanoseconds()
        assert ended == await client.get_turn("s1", "t2")
        assert not (await client.get("s1")).queue


async def test_a_promoted_turn_is_offered_at_once(stage: Stage) -> None:
    client, holder = stage.client, await stage.begun("t0")
    for number in range(1, 10):
        await client.start("s1", turn_id=f"t{number}", if_busy=ENQUEUE)
    async with asyncio.timeout(3.0):
        for number in range(10):
            await stage.begins(f"t{number}")
            await holder.complete(f"t{number}")
    turns = (await client.list_turns("s1")).turns
    waited = [
        turn.begin_time.ToNanoseconds() - turn.admit_time.ToNanoseconds()
        for turn in turns
        if turn.turn_id != "t0"
    ]
    # The outbox looks by itself each half second only.
    assert sorted(waited)[len(waited) // 2] < 0.25e9


async def test_an_interrupting_turn_stops_by_delivery_and_follows(stage: Stage) -> None:
    client = stage.client
    await stage.begun("t1")
    await client.start("s1", turn_id="t2", if_busy=ENQUEUE)
    turn = await client.start("s1", turn_id="t3", if_busy=INTERRUPT)
    assert (turn.state in (QUEUED, ADMITTED), turn.HasField("queue_expire_time")) == (
        True,
        turn.state == QUEUED,
    )
    await stage.begins("t3")
    ended = await client.get_turn("s1", "t1")
    assert (ended.state, ended.end_reason, ended.stop_method) == (
        turn_pb2.TURN_STATE_STOPPED,
        turn_pb2.END_REASON_INTERRUPTED,
        turn_pb2.STOP_METHOD_AGENT_CONFIRMED,
    )
    await stage.holder.complete("t3")
    await stage.begins("t2")


async def test_what_waits_too_long_fails_and_its_watcher_hears_of_it(stage: Stage, places: Places) -> None:
    await stage.begun("t1")
    async with (
        running_session(places, queue_expiry=0.5, queue_limit=1) as other,
        open_channel(other.endpoint) as channel,
    ):
        client = Client(channel)
        events = client.run("s1", turn_id="t2", if_busy=ENQUEUE)
        assert (await anext(events)).admitted.state == QUEUED
        with pytest.raises(ResourceExhausted) as full:
            await client.start("s1", turn_id="t3", if_busy=ENQUEUE)
        assert (full.value.reason_name, full.value.metadata["limit"]) == ("QUEUE_FULL", "1")
        *_, last = [event async for event in events]
        assert (last.ended.state, last.ended.end_reason) == (
            turn_pb2.TURN_STATE_FAILED,
            turn_pb2.END_REASON_QUEUE_EXPIRED,
        )
        assert last.ended.error.code == "QUEUE_EXPIRED"
        assert not last.ended.prompt_sent


async def test_a_closing_session_ends_its_queue(stage: Stage) -> None:
    client = stage.client
    await stage.begun("t1")
    events = client.run("s1", turn_id="t2", if_busy=ENQUEUE)
    await anext(events)
    assert not (await client.close("s1")).queue
    *_, last = [event async for event in events]
    assert (last.ended.end_reason, last.ended.stop_method) == (
        turn_pb2.END_REASON_CLOSED,
        turn_pb2.STOP_METHOD_NOT_BEGUN,
    )


async def test_commands_are_listed_newest_first_and_by_turn(client: Client) -> None:
    await client.create(session_id="s1")
    for number in range(5):
        await client.start("s1", turn_id=f"t{number}")
        await client.stop("s1", f"t{number}")
    everything = await client.list_commands("s1")
    assert [command.turn_id for command in everything.commands] == ["t4", "t3", "t2", "t1", "t0"]
    assert everything.next_page_token == ""
    found: list[session_pb2.Command] = []
    token = ""
    while True:
        page = await client.list_commands("s1", page_size=2, page_token=token)
        found.extend(page.commands)
        if not (token := page.next_page_token):
            break
        assert len(page.commands) == 2
    assert found == list(everything.commands)
    assert found[0] == await client.get_command("s1", found[0].command_id)
    [one] = (await client.list_commands("s1", turn_id="t3")).commands
    assert one.turn_id == "t3"
    assert not (await client.list_commands("s1", turn_id="none")).commands
    first = await client.list_commands("s1", page_size=2)
    with pytest.raises(InvalidArgument):
        await client.list_commands("s1", turn_id="t3", page_token=first.next_page_token)
    with pytest.raises(NotFound):
        await client.list_commands("s2")


@pytest.mark.parametrize(
    ("field", "fields"),
    [("session_id", {"session_id": "a b"}), ("turn_id", {"session_id": "s1", "turn_id": "a/b"})],
)
async def test_bad_input_of_a_list_names_the_field(
    client: Client, field: str, fields: dict[str, Any]
) -> None:
    with pytest.raises(InvalidArgument) as refusal:
        await client.list_commands(**fields)
    assert [violation.field for violation in refusal.value.violations] == [field]


async def test_a_way_to_meet_a_busy_session_that_nobody_knows_is_refused(client: Client) -> None:
    await client.create(session_id="s1")
    with pytest.raises(InvalidArgument) as refusal:
        await client.start("s1", if_busy=9)
    assert [violation.field for violation in refusal.value.violations] == ["if_busy"]
