"""AppendRecords: numbering, repeats, and one bad item that never fails another (R1, R2, R3)."""

from __future__ import annotations

import asyncio
import random
from dataclasses import replace

import grpc
import pytest
from moorage.common.v1 import content_pb2, record_pb2
from moorage.common.v1.errors_pb2 import ErrorReason
from moorage.common.v1.grant_pb2 import Grant
from moorage.session.v1 import journal_pb2

from services.common.database import Database
from services.common.errors import MoorageError, ShuttingDown
from services.common.status import from_rpc_error
from services.session.records import MAX_BODY
from services.session.servicers.writes import append_call
from services.session.turns import EndReason, TurnState
from tests.conditions import eventually
from tests.databases import execute
from tests.session.desks import Desk, Holder, append, append_results, message, outcome


async def test_records_are_numbered_in_the_session_after_its_own(desk: Desk) -> None:
    holder = await desk.begun()
    assert await holder.append(1, 2, 3) == [3, 4, 5]
    assert (await desk.read_turn()).last_turn_seq == 3
    records = await desk.transcript()
    assert [(record.seq, record.turn_seq) for record in records] == [(1, 0), (2, 0), (3, 1), (4, 2), (5, 3)]
    assert records[2].body == message("text 1").SerializeToString()


async def test_known_records_are_acknowledged_again_under_their_seq(desk: Desk) -> None:
    holder = await desk.begun()
    assert await holder.append(1, 2) == [3, 4]
    assert await holder.append(2, 1, 2, 3, 3) == [4, 3, 4, 5, 5]
    assert len(await desk.transcript()) == 5


async def test_a_gap_names_the_number_that_comes_next(desk: Desk) -> None:
    holder = await desk.begun()
    await holder.append(1)
    (result,) = await append_results(desk, [holder.item(3)])
    assert result.error.reason == ErrorReason.ERROR_REASON_RECORD_GAP
    assert dict(result.error.metadata) == {"turn_id": "t1", "turn_seq": "3", "expected": "2"}
    assert result.error.message == "record 3 of turn t1 leaves a gap: 2 comes next"
    assert (result.project, result.session_id, result.turn_id, result.turn_seq) == ("default", "s1", "t1", 3)
    assert await holder.append(3, 2, 3) == ["RECORD_GAP", 4, 5]


async def test_another_body_under_a_stored_number_fails_the_turn(desk: Desk) -> None:
    holder = await desk.begun()
    await holder.append(1, 2)
    assert await holder.append(1, prefix="other") == ["RECORD_CONFLICT"]
    turn = await desk.read_turn()
    assert (turn.state, turn.end_reason) == (TurnState.FAILED, EndReason.RECORD_CONFLICT)
    error, ended = (await desk.transcript())[-2:]
    assert (error.record_id, ended.record_id, turn.last_seq) == ("t1/error", "t1/turn_ended", 6)
    told = record_pb2.RecordBody.FromString(error.body).error.error
    assert told.code == "RECORD_CONFLICT"
    assert dict(told.metadata) == {"session_id": "s1", "turn_id": "t1", "turn_seq": "1", "seq": "3"}
    # The transcript as it was stands, and its records are still acknowledged.
    assert await holder.append(1, 2, 3) == [3, 4, "TURN_ENDED"]


async def test_a_conflict_within_one_request_is_found(desk: Desk) -> None:
    holder = await desk.begun()
    items = [holder.item(1, "one"), holder.item(1, "two"), holder.item(2, "three")]
    assert await append(desk, items) == [3, "RECORD_CONFLICT", "TURN_ENDED"]


async def test_after_the_end_only_repeats_are_acknowledged(desk: Desk) -> None:
    holder = await desk.begun()
    await holder.append(1)
    await holder.finish(last_turn_seq=1)
    assert await holder.append(1, 2) == [3, "TURN_ENDED"]
    assert await holder.append(1, prefix="other") == ["TURN_ENDED"]
    assert (await desk.read_turn()).state is TurnState.COMPLETED


async def test_a_turn_that_is_not_begun_has_no_records(desk: Desk) -> None:
    await desk.session()
    await desk.turn()
    assert await desk.holder().append(1) == ["TURN_NOT_BEGUN"]


async def test_one_bad_item_never_fails_another(desk: Desk) -> None:
    good = [await desk.begun(f"s{number}", token=3) for number in range(3)]
    ended = await desk.begun("ended")
    await ended.finish()
    lost = await desk.begun("lost", token=2)
    items = [
        good[2].item(1),
        desk.holder("unknown").item(1),
        good[0].item(1),
        replace(good[0], turn_id="unknown").item(2),
        replace(good[1], token=2).item(1),
        replace(good[1], shown=Grant()).item(1),
        replace(good[1], lasts=-5.0).item(1),
        good[1].item(5),
        ended.item(1),
        good[1].item(1),
        replace(lost, token=9).item(1),
        lost.item(1),
        good[0].item(2),
        good[0].item(3, body=record_pb2.RecordBody()),
        replace(good[0], attempt_id="bad id").item(3),
        good[0].item(3),
    ]
    assert await append(desk, items) == [
        3,
        "SESSION_NOT_FOUND",
        3,
        "TURN_NOT_FOUND",
        "STALE_OWNER",
        "MISSING_OWNER",
        "LEASE_EXPIRED",
        "RECORD_GAP",
        "TURN_ENDED",
        3,
        "TURN_ENDED",
        "STALE_OWNER",
        4,
        "INVALID_FIELD",
        "INVALID_FIELD",
        5,
    ]
    assert (await desk.read_turn(session_id="lost")).end_reason is EndReason.TAKEN_OVER
    for session_id in ("s0", "s1", "s2", "ended", "lost"):
        await desk.transcript(session_id)


@pytest.mark.parametrize(
    ("field", "turn_seq", "body"),
    [
        ("turn_seq", 0, message("x")),
        ("turn_seq", -1, message("x")),
        ("body", 1, record_pb2.RecordBody()),
        ("body", 1, record_pb2.RecordBody(user_message=record_pb2.UserMessage())),
        ("body", 1, record_pb2.RecordBody(turn_started=record_pb2.TurnStarted())),
        ("body", 1, record_pb2.RecordBody(turn_ended=record_pb2.TurnEnded())),
        ("body", 1, record_pb2.RecordBody(interaction_opened=record_pb2.InteractionOpened())),
        ("body", 1, record_pb2.RecordBody(interaction_closed=record_pb2.InteractionClosed())),
        ("body", 1, message("x" * MAX_BODY)),
    ],
)
async def test_what_no_runner_may_append_names_the_field(
    desk: Desk, field: str, turn_seq: int, body: record_pb2.RecordBody
) -> None:
    holder = await desk.begun()
    (result,) = await append_results(desk, [holder.item(turn_seq, body=body)])
    assert outcome(result) == "INVALID_FIELD"
    assert result.error.metadata["field"] == field
    assert await holder.append(1) == [3]


async def test_every_kind_that_runners_have_comes_back_as_it_was(desk: Desk) -> None:
    block = content_pb2.ContentBlock(text=content_pb2.TextContent(text="a\0b \U0001f6a2"))
    bodies = [
        message("a\0b"),
        record_pb2.RecordBody(thought=record_pb2.Thought(message_id="m\0", content=block)),
        record_pb2.RecordBody(tool_call=record_pb2.ToolCall(tool_call_id="c1", raw_input='{"a":"\\u0000"}')),
        record_pb2.RecordBody(tool_update=record_pb2.ToolUpdate(tool_call_id="c1", title="")),
        record_pb2.RecordBody(plan=record_pb2.Plan(entries=[record_pb2.PlanEntry(content="x")])),
        record_pb2.RecordBody(usage=record_pb2.Usage()),
        record_pb2.RecordBody(error=record_pb2.ErrorRecord()),
        record_pb2.RecordBody(raw_json=record_pb2.RawJson(method="x", json="\0")),
    ]
    holder = await desk.begun()
    await append(desk, [holder.item(number, body=body) for number, body in enumerate(bodies, 1)])
    stored = [record.body for record in await desk.transcript() if record.turn_seq]
    assert [record_pb2.RecordBody.FromString(body) for body in stored] == bodies


async def test_random_repetitions_store_each_record_once(desk: Desk) -> None:
    choice = random.Random(7)
    holders = [await desk.begun(f"s{number}") for number in range(4)]
    sent = dict.fromkeys(holders, 0)
    stub = holders[0].stub
    call = stub.AppendRecords()
    for _ in range(60):
        items = [item for holder in choice.sample(holders, 3) for item in some(choice, holder, sent)]
        await call.write(journal_pb2.AppendRecordsRequest(appends=items))
    await call.done_writing()
    results = [result for response in [response async for response in call] for result in response.results]
    assert {result.WhichOneof("result") for result in results} == {"seq"}
    for holder, last in sent.items():
        records = [record for record in await desk.transcript(holder.key.session_id) if record.turn_seq]
        assert [record.turn_seq for record in records] == list(range(1, last + 1))
        assert [record.body for record in records] == [
            message(f"text {number}").SerializeToString() for number in range(1, last + 1)
        ]
        told = {
            result.turn_seq: result.seq for result in results if result.session_id == holder.key.session_id
        }
        assert told == {record.turn_seq: record.seq for record in records}


def some(choice: random.Random, holder: Holder, sent: dict[Holder, int]) -> list[journal_pb2.RecordAppend]:
    """Records from some number sent before on, with some new ones."""
    first = choice.randint(1, sent[holder] + 1)
    last = sent[holder] + choice.randint(0, 4)
    sent[holder] = max(sent[holder], last)
    return [holder.item(number, f"text {number}") for number in range(first, last + 1)]


async def test_requests_are_pipelined_but_bounded(desk: Desk, database: Database) -> None:
    holder = await desk.begun()
    call = holder.stub.AppendRecords()
    async with database.transaction() as connection:
        await connection.execute("SELECT 1 FROM session.sessions FOR UPDATE")
        for number in range(1, 101):
            await call.write(journal_pb2.AppendRecordsRequest(appends=[holder.item(number, "x")]))
        await eventually(lambda: desk.appender.waiting == 7)
    await call.done_writing()
    outcomes = [outcome(result) async for response in call for result in response.results]
    assert outcomes == list(range(3, 103))


async def test_what_waits_meanwhile_shares_one_transaction(desk: Desk, database: Database) -> None:
    holders = [await desk.begun(f"s{number}") for number in range(20)]
    async with database.transaction() as connection:
        await connection.execute("SELECT 1 FROM session.sessions WHERE session_id = 's0' FOR UPDATE")
        first = asyncio.create_task(holders[0].append(1))
        await eventually(lambda: desk.appender.waiting == 0 and desk.appender.appending == 1)
        rest = [asyncio.create_task(holder.append(1, 2)) for holder in holders[1:]]
        await eventually(lambda: desk.appender.waiting == 19)
    assert await first == [3]
    assert await asyncio.gather(*rest) == [[3, 4]] * 19
    async with database.connection() as connection:
        transactions = await connection.fetchval(
            "SELECT count(DISTINCT xmin::text) FROM session.records WHERE turn_seq IS NOT NULL"
        )
    assert transactions == 2


async def test_a_record_that_the_database_rejects_hurts_no_other(desk: Desk, database_url: str) -> None:
    await execute(
        database_url, "ALTER TABLE session.records ADD CHECK (position('poison'::bytea IN body) = 0)"
    )
    holder, other = await desk.begun("s1"), await desk.begun("s2")
    items = [holder.item(1, "x"), other.item(1, "poison"), holder.item(2, "y"), other.item(1, "z")]
    results = await append_results(desk, items)
    assert [outcome(result) for result in results] == [3, "INTERNAL", 4, 3]
    assert results[1].error.metadata["error_id"]
    assert "poison" not in results[1].error.message


async def test_at_shutdown_what_is_not_stored_is_refused(desk: Desk, database: Database) -> None:
    holder = await desk.begun()
    async with database.transaction() as connection:
        await connection.execute("SELECT 1 FROM session.sessions FOR UPDATE")
        call = holder.stub.AppendRecords()
        for number in range(1, 4):
            await call.write(journal_pb2.AppendRecordsRequest(appends=[holder.item(number)]))
        await eventually(lambda: desk.appender.waiting == 2)
        desk.appending.cancel()
        with pytest.raises(grpc.aio.AioRpcError) as refusal:
            await call.read()
        assert refused(refusal.value) == "SHUTTING_DOWN"
    with pytest.raises(grpc.aio.AioRpcError) as refusal:
        await holder.append(1)
    assert refused(refusal.value) == "SHUTTING_DOWN"


async def test_a_drain_answers_what_a_stream_brought_and_ends_it(desk: Desk, database: Database) -> None:
    holder = await desk.begun()
    call = holder.stub.AppendRecords()
    async with database.transaction() as connection:
        await connection.execute("SELECT 1 FROM session.sessions FOR UPDATE")
        for number in range(1, 3):
            await call.write(journal_pb2.AppendRecordsRequest(appends=[holder.item(number)]))
        await eventually(lambda: desk.appender.appending == 1 and desk.appender.waiting == 1)
        desk.servicer.drain()
    for seq in (3, 4):
        answer = await call.read()
        assert isinstance(answer, journal_pb2.AppendRecordsResponse)
        assert [result.seq for result in answer.results] == [seq]
    with pytest.raises(grpc.aio.AioRpcError) as refusal:
        await call.read()
    assert refused(refusal.value) == "SHUTTING_DOWN"
    with pytest.raises(grpc.aio.AioRpcError) as refusal:
        await holder.append(3)
    assert refused(refusal.value) == "SHUTTING_DOWN"


async def test_at_shutdown_nobody_who_waits_to_submit_is_forgotten(desk: Desk, database: Database) -> None:
    holder = await desk.begun()
    calls = [append_call(holder.item(1))]
    async with database.transaction() as connection:
        await connection.execute("SELECT 1 FROM session.sessions FOR UPDATE")
        waiting = [asyncio.create_task(desk.appender.submit(calls)) for _ in range(150)]
        await eventually(lambda: desk.appender.waiting == 32)
        desk.appending.cancel()
        outcomes = [await submitted for submitted in await asyncio.gather(*waiting)]
    assert {type(outcome) for outcome in outcomes} == {ShuttingDown}
    late = await desk.appender.submit(calls)
    assert isinstance(await late, ShuttingDown)


async def test_a_request_without_records_is_answered(desk: Desk) -> None:
    await desk.begun()
    assert await append(desk, []) == []


def refused(error: grpc.aio.AioRpcError) -> str:
    told: MoorageError = from_rpc_error(error)
    return told.reason_name
