"""OpenInteraction: a question is stored with its record, once, and its turn waits (R1, F5)."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from moorage.common.v1 import record_pb2, turn_pb2
from moorage.session.v1 import session_pb2

from services.common.errors import InvalidArgument, MoorageError
from services.session.interactions import InteractionState
from services.session.turns import EndReason, TurnInProgress, TurnState
from tests.session.desks import Desk, Holder, question
from tests.session.questions import answer, check_told, read
from tests.session.stops import stop

PENDING = session_pb2.INTERACTION_STATE_PENDING


async def reason_of(holder: Holder, *args: Any, **fields: Any) -> str:
    """Empty, or why the question is refused."""
    try:
        await holder.ask(*args, **fields)
    except MoorageError as refusal:
        return refusal.reason_name
    return ""


async def test_a_question_is_stored_with_its_record_and_its_turn_waits(desk: Desk) -> None:
    holder = await desk.begun()
    await holder.append(1, 2)
    response = await holder.ask(3)
    asked = response.interaction
    assert (response.seq, asked.state, asked.turn_id, asked.session_id) == (5, PENDING, "t1", "s1")
    assert (asked.title, asked.tool_call_id, asked.kind) == (
        "Run make?",
        "call_1",
        record_pb2.INTERACTION_KIND_PERMISSION,
    )
    assert [option.option_id for option in asked.options] == ["yes", "no"]
    stored = await read(desk)
    assert stored.expire_time - stored.create_time >= timedelta(hours=1) - timedelta(milliseconds=5)
    assert stored.expire_time - stored.create_time < timedelta(hours=1, seconds=10)
    turn = await desk.read_turn()
    assert (turn.state, turn.pending_interaction_ids, turn.last_turn_seq) == (
        TurnState.AWAITING_INPUT,
        ["q1"],
        3,
    )
    *_, record = await desk.transcript()
    assert (record.turn_seq, record.kind) == (3, "interaction_opened")
    assert record_pb2.RecordBody.FromString(record.body).interaction_opened == question("q1")
    await check_told(desk)


async def test_a_turn_that_waits_goes_on_like_any_begun_turn(desk: Desk) -> None:
    holder = await desk.begun()
    await holder.ask(1)
    assert await holder.append(2, 3) == [4, 5]
    assert (await holder.report(phase=turn_pb2.TURN_PHASE_PROMPTED)).phase == turn_pb2.TURN_PHASE_PROMPTED
    assert (await holder.begin()).interaction_timeout.seconds == 3600
    assert (await desk.read_turn()).state is TurnState.AWAITING_INPUT
    with pytest.raises(TurnInProgress) as busy:
        await desk.turn("t2")
    assert busy.value.metadata == {
        "session_id": "s1",
        "turn_id": "t1",
        "state": "AWAITING_INPUT",
        "phase": "PROMPTED",
        "interaction_id": "q1",
    }


async def test_repeated_it_is_answered_as_it_stands(desk: Desk) -> None:
    holder = await desk.begun()
    first = await holder.ask(1)
    assert await holder.ask(1) == first
    await holder.append(2)
    await answer(desk, "q1", "yes")
    again = await holder.ask(1)
    assert (again.seq, again.interaction.state) == (first.seq, session_pb2.INTERACTION_STATE_ANSWERED)
    assert (again.interaction.option_id, again.interaction.settled_by) == ("yes", "client")
    await holder.finish(last_turn_seq=2)
    assert await holder.ask(1) == again
    assert len(await desk.transcript()) == 6
    await check_told(desk)


async def test_another_body_is_a_conflict_that_ends_the_turn(desk: Desk) -> None:
    holder = await desk.begun()
    await holder.ask(1)
    assert await reason_of(holder, 1, title="Run rm?") == "RECORD_CONFLICT"
    turn = await desk.read_turn()
    assert (turn.state, turn.end_reason) == (TurnState.FAILED, EndReason.RECORD_CONFLICT)
    assert (await read(desk)).state is InteractionState.CANCELLED
    await check_told(desk)


async def test_a_question_in_the_place_of_another_record_is_a_conflict(desk: Desk) -> None:
    holder = await desk.begun()
    await holder.append(1)
    assert await reason_of(holder, 1) == "RECORD_CONFLICT"


async def test_what_is_refused_stores_nothing(desk: Desk) -> None:
    await desk.session()
    await desk.turn()
    holder = desk.holder()
    assert await reason_of(holder, 1) == "TURN_NOT_BEGUN"
    await holder.begin()
    await holder.append(1)
    with pytest.raises(MoorageError) as gap:
        await holder.ask(3)
    assert (gap.value.reason_name, gap.value.metadata["expected"]) == ("RECORD_GAP", "2")
    assert await reason_of(desk.holder(attempt_id="a2"), 2) == "TURN_ALREADY_BEGUN"
    assert await reason_of(desk.holder(turn_id="t9"), 2) == "TURN_NOT_FOUND"
    assert await reason_of(desk.holder("s9"), 2) == "SESSION_NOT_FOUND"
    assert await reason_of(desk.holder(lasts=-60.0), 2) == "LEASE_EXPIRED"
    assert (await desk.read_turn()).state is TurnState.RUNNING
    assert len(await desk.transcript()) == 3
    assert (await holder.ask(2)).seq == 4
    await check_told(desk)


async def test_a_stale_holder_asks_nothing_and_the_new_one_ends_the_turn(desk: Desk) -> None:
    holder = await desk.begun()
    await holder.ask(1)
    assert await reason_of(desk.holder(token=2, attempt_id="a2", name="runner/2"), 2, "q2") == "TURN_ENDED"
    assert await reason_of(holder, 2, "q2") == "STALE_OWNER"
    turn = await desk.read_turn()
    assert (turn.state, turn.end_reason) == (TurnState.LOST, EndReason.TAKEN_OVER)
    stored = await read(desk)
    assert (stored.state, stored.settled_by) == (InteractionState.CANCELLED, "TAKEN_OVER")
    await check_told(desk)


async def test_a_name_is_used_once_in_a_session(desk: Desk) -> None:
    holder = await desk.begun()
    await holder.ask(1)
    for turn_seq in (2, 3):
        with pytest.raises(InvalidArgument) as refusal:
            await holder.ask(turn_seq)
        assert [violation.field for violation in refusal.value.violations] == ["interaction.interaction_id"]
    await holder.ask(2, "q2")
    assert (await desk.read_turn()).pending_interaction_ids == ["q1", "q2"]
    await desk.begun("s2")
    assert (await desk.holder("s2").ask(1)).seq == 3


async def test_a_turn_that_is_being_stopped_asks_nothing_more(desk: Desk) -> None:
    holder = await desk.begun()
    before = await holder.ask(1, "q1")
    command = await stop(desk, "t1")
    records = len(await desk.transcript())
    late = await holder.ask(2, "q2")
    assert (late.seq, late.interaction.state) == (0, session_pb2.INTERACTION_STATE_CANCELLED)
    assert (late.interaction.interaction_id, late.interaction.title) == ("q2", "Run make?")
    assert len(await desk.transcript()) == records
    # The one that was stored before is answered as it stands, and what comes next takes the free number.
    again = await holder.ask(1, "q1")
    assert (again.seq, again.interaction.state) == (before.seq, session_pb2.INTERACTION_STATE_CANCELLED)
    assert again.interaction.settled_by == command.command_id
    assert await holder.append(2) == [records + 1]
    assert (await desk.read_turn()).state is TurnState.RUNNING
    await check_told(desk)


@pytest.mark.parametrize(
    ("field", "fields"),
    [
        ("interaction.interaction_id", {"interaction_id": "a b"}),
        ("interaction.kind", {"kind": record_pb2.INTERACTION_KIND_UNSPECIFIED}),
        ("interaction.schema", {"kind": record_pb2.INTERACTION_KIND_FORM}),
        ("interaction.kind", {"kind": 99}),
        ("interaction.options", {"options": []}),
        ("interaction.options", {"options": [record_pb2.InteractionOption(option_id="a")] * 2}),
        (
            "interaction.options",
            {"options": [record_pb2.InteractionOption(option_id=f"o{n}") for n in range(65)]},
        ),
        ("interaction.options[0].option_id", {"options": [record_pb2.InteractionOption(name="x")]}),
        ("interaction.options[0].option_id", {"options": [record_pb2.InteractionOption(option_id="a\0")]}),
        ("interaction", {"title": "x" * 256 * 1024}),
        ("turn_seq", {"turn_seq": 0}),
    ],
)
async def test_bad_questions_name_the_field(desk: Desk, field: str, fields: dict[str, Any]) -> None:
    holder = await desk.begun()
    values = {"turn_seq": 1, "interaction_id": "q1", **fields}
    with pytest.raises(InvalidArgument) as refusal:
        await holder.ask(**values)
    assert [violation.field for violation in refusal.value.violations] == [field]
    assert (await desk.read_turn()).state is TurnState.RUNNING


async def test_what_agents_write_for_people_is_kept_as_it_is(desk: Desk) -> None:
    holder = await desk.begun()
    strange = "Run \0 ✓?"
    await holder.ask(1, title=strange, kind=record_pb2.INTERACTION_KIND_CHOICE)
    assert (await read(desk)).asked.title == strange
