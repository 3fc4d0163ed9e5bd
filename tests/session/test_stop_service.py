"""StopTurn and GetCommand over gRPC, on whole replicas with real neighbours."""

from __future__ import annotations

import asyncio
from typing import Any

import asyncpg
import grpc
import pytest
from moorage.common.v1 import turn_pb2
from moorage.session.v1 import session_pb2

from services.common.channels import open_channel
from services.common.errors import InvalidArgument, MoorageError, NotFound, StartupRefused
from services.session.server import build
from tests.conditions import eventually
from tests.databases import fetch_value
from tests.fakes import Gate
from tests.session.clients import Client
from tests.session.places import Places, running_session
from tests.session.stages import Stage

PENDING, CLAIMED = session_pb2.COMMAND_STATE_PENDING, session_pb2.COMMAND_STATE_CLAIMED
TRACEPARENT = "00-5bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


async def test_a_running_turn_is_stopped_and_the_caller_can_wait_for_it(stage: Stage) -> None:
    runner, client = stage.runner, stage.client
    confirm, gate = runner.stop_act, Gate()
    runner.stop_act = gate
    await stage.begun("t1")
    answer = await client.traced(TRACEPARENT).stop("s1", "t1")
    assert (answer.command.state, answer.command.turn_id) == (PENDING, "t1")
    assert answer.turn.stopping
    assert answer.turn.stop_deadline == answer.command.deadline
    lasts = answer.command.deadline.ToDatetime() - answer.command.create_time.ToDatetime()
    assert round(lasts.total_seconds()) == 42
    await gate.reached.wait()
    assert (await client.get("s1")).turn.stopping
    waiting = asyncio.create_task(client.get_command("s1", answer.command.command_id, wait=True))
    assert confirm is not None
    await confirm(runner.stops[0])
    command = await waiting
    gate.open.set()
    assert command.state == session_pb2.COMMAND_STATE_APPLIED
    assert command.outcome == session_pb2.COMMAND_OUTCOME_STOPPED
    assert command.stop_method == turn_pb2.STOP_METHOD_AGENT_CONFIRMED
    assert command.runtime_after == turn_pb2.RUNTIME_AFTER_WARM
    assert (command.deliveries, command.HasField("settle_time")) == (1, True)
    turn = await client.get_turn("s1", "t1")
    assert (turn.state, turn.end_reason) == (turn_pb2.TURN_STATE_STOPPED, turn_pb2.END_REASON_USER_STOP)
    assert (turn.stopping, turn.HasField("stop_deadline")) == (False, False)
    assert turn.stop_method == turn_pb2.STOP_METHOD_AGENT_CONFIRMED
    assert runner.stop_traceparents[0][3:35] == TRACEPARENT[3:35]


async def test_a_turn_that_nobody_took_ends_at_once_and_its_stream_with_it(client: Client) -> None:
    await client.create(session_id="s1")
    events = client.run("s1", turn_id="t1")
    assert (await anext(events)).admitted.turn_id == "t1"
    answer = await client.stop("s1")
    assert (answer.command.outcome, answer.turn.state) == (
        session_pb2.COMMAND_OUTCOME_STOPPED,
        turn_pb2.TURN_STATE_STOPPED,
    )
    assert answer.turn.stop_method == turn_pb2.STOP_METHOD_NOT_BEGUN
    *_, last = [event async for event in events]
    assert last.ended == answer.turn
    assert (await client.start("s1")).state == turn_pb2.TURN_STATE_ADMITTED


async def test_a_wait_ends_with_the_calls_deadline_or_when_another_replica_settles_it(
    stage: Stage, places: Places
) -> None:
    stage.runner.stop_act = None
    holder = await stage.begun("t1")
    command = (await stage.client.stop("s1", "t1")).command
    async with running_session(places) as other, open_channel(other.endpoint) as channel:
        found = await Client(channel).with_patience(1.5).get_command("s1", command.command_id, wait=True)
        assert found.state in (PENDING, CLAIMED)
        waiting = asyncio.create_task(Client(channel).get_command("s1", command.command_id, wait=True))
        await holder.complete("t1")
        assert (await waiting).outcome == session_pb2.COMMAND_OUTCOME_NOT_RUNNING


async def test_a_wait_ends_when_the_replica_does(stage: Stage, places: Places) -> None:
    stage.runner.stop_act = None
    await stage.begun("t1")
    command = (await stage.client.stop("s1", "t1")).command
    async with running_session(places) as other, open_channel(other.endpoint) as channel:
        client = Client(channel)
        waiting = asyncio.create_task(client.get_command("s1", command.command_id, wait=True))
        assert (await client.get_command("s1", command.command_id)).turn_id == "t1"
        await other.drain()
        with pytest.raises(MoorageError) as refusal:
            await waiting
        assert refusal.value.reason_name == "SHUTTING_DOWN"


async def test_an_unnamed_stop_that_was_held_up_spares_the_next_turn(stage: Stage, database_url: str) -> None:
    """The turn in progress when the call arrived ended, and another began, before it was carried out."""
    holder = await stage.begun("t1")
    connection = await asyncpg.connect(database_url)
    blocker = connection.transaction()
    await blocker.start()
    await connection.execute(
        """
        INSERT INTO session.request_ids (project, scope, rpc, request_id, fingerprint)
        VALUES ('default', 's1', 'StopTurn', 'r1', '')
        """
    )
    late = asyncio.create_task(stage.client.stop("s1", request_id="r1"))
    await eventually(lambda: is_blocked(database_url))
    await holder.complete("t1")
    await stage.begun("t2")
    await blocker.rollback()
    await connection.close()
    command = (await late).command
    assert (command.outcome, command.turn_id) == (
        session_pb2.COMMAND_OUTCOME_SUPERSEDED_BY_NEWER_TURN,
        "",
    )
    turn = await stage.client.get_turn("s1", "t2")
    assert (turn.state, turn.stopping) == (turn_pb2.TURN_STATE_RUNNING, False)
    assert not stage.runner.stops


async def is_blocked(database_url: str) -> bool:
    """Whether a statement of this database waits for a lock."""
    query = """
        SELECT count(*) FROM pg_stat_activity
        WHERE datname = current_database() AND wait_event_type = 'Lock'
    """
    return bool(await fetch_value(database_url, query))


async def test_stops_one_after_the_other_always_hit_the_turn_that_was_started_before(
    client: Client,
) -> None:
    await client.create(session_id="s1")
    for number in range(20):
        turn = await client.start("s1", turn_id=f"t{number}")
        answer = await client.stop("s1")
        assert answer.command.turn_id == turn.turn_id
        assert answer.command.outcome == session_pb2.COMMAND_OUTCOME_STOPPED


@pytest.mark.parametrize(
    ("field", "fields"),
    [
        ("session_id", {"session_id": "no spaces"}),
        ("expected_turn_id", {"session_id": "s1", "turn_id": "no/slashes"}),
        ("request_id", {"session_id": "s1", "request_id": "r" * 256}),
    ],
)
async def test_bad_input_names_the_field(client: Client, field: str, fields: dict[str, Any]) -> None:
    with pytest.raises(InvalidArgument) as refusal:
        await client.stop(**fields)
    assert [violation.field for violation in refusal.value.violations] == [field]


async def test_what_does_not_exist_is_not_found(client: Client, channel: grpc.aio.Channel) -> None:
    await client.create(session_id="s1")
    command = (await client.stop("s1", "t1")).command
    for look, reason in [
        (client.stop("s2", "t1"), "SESSION_NOT_FOUND"),
        (client.get_command("s2", command.command_id), "SESSION_NOT_FOUND"),
        (client.get_command("s1", "c1"), "COMMAND_NOT_FOUND"),
        (Client(channel, "other").stop("s1", "t1"), "SESSION_NOT_FOUND"),
        (Client(channel, "other").get_command("s1", command.command_id), "SESSION_NOT_FOUND"),
    ]:
        with pytest.raises(NotFound) as refusal:
            await look
        assert refusal.value.reason_name == reason
    assert await client.get_command("s1", command.command_id, wait=True) == command


async def test_a_way_of_delivery_that_nobody_knows_refuses_to_start(places: Places) -> None:
    with pytest.raises(StartupRefused, match="stop_delivery"):
        build(places.settings(stop_delivery="pigeon"))
