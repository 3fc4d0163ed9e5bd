"""FinishTurn: the only settlement (S10)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from moorage.common.v1 import record_pb2, turn_pb2

from services.common.errors import InvalidArgument, MoorageError
from services.session import convert
from services.session.journal.endings import Ending, check_reported
from services.session.journal.locked import RecordsMissing
from services.session.journal.rules import SessionKey
from services.session.turns import ENDINGS, EndReason, TurnState
from tests.session.desks import Desk, message

ERROR = turn_pb2.TurnError(code="AGENT_EXITED", message="the agent exited", metadata={"exit_code": "3"})
FAILED = {
    "state": turn_pb2.TURN_STATE_FAILED,
    "end_reason": turn_pb2.END_REASON_AGENT_EXITED,
    "error": ERROR,
}


async def test_a_turn_ends_with_its_last_record(desk: Desk) -> None:
    holder = await desk.begun()
    await holder.append(1, 2)
    answer = await holder.finish(
        last_turn_seq=2,
        stop_reason="end_turn",
        runtime_after=turn_pb2.RUNTIME_AFTER_ENDED,
        usage=turn_pb2.TokenUsage(input_tokens=5),
    )
    turn = await desk.read_turn()
    assert answer.turn == convert.turn(turn)
    assert (turn.state, turn.end_reason, turn.phase) == (TurnState.COMPLETED, EndReason.AGENT_ENDED, None)
    assert (turn.stop_reason, turn.runtime_after, turn.stop_method) == ("end_turn", "ENDED", None)
    assert turn.end_time is not None
    last = (await desk.transcript())[-1]
    assert (last.seq, last.record_id, last.turn_seq) == (turn.last_seq, "t1/turn_ended", 0)
    ended = record_pb2.RecordBody.FromString(last.body).turn_ended
    assert ended == record_pb2.TurnEnded(
        state=turn_pb2.TURN_STATE_COMPLETED,
        end_reason=turn_pb2.END_REASON_AGENT_ENDED,
        stop_reason="end_turn",
        runtime_after=turn_pb2.RUNTIME_AFTER_ENDED,
        usage=turn_pb2.TokenUsage(input_tokens=5),
    )
    assert desk.changed[-1] == SessionKey("default", "s1")


async def test_a_failed_turn_tells_why(desk: Desk) -> None:
    holder = await desk.begun()
    answer = await holder.finish(**FAILED)
    assert answer.turn.error == ERROR
    last = (await desk.transcript())[-1]
    assert record_pb2.RecordBody.FromString(last.body).turn_ended.error == ERROR


async def test_a_stopped_turn_tells_how(desk: Desk) -> None:
    holder = await desk.begun()
    await holder.finish(
        state=turn_pb2.TURN_STATE_STOPPED,
        end_reason=turn_pb2.END_REASON_DRAINED,
        stop_method=turn_pb2.STOP_METHOD_TERMINATED,
    )
    turn = await desk.read_turn()
    assert (turn.state, turn.end_reason, turn.stop_method) == (
        TurnState.STOPPED,
        EndReason.DRAINED,
        "TERMINATED",
    )
    last = (await desk.transcript())[-1]
    method = record_pb2.RecordBody.FromString(last.body).turn_ended.stop_method
    assert method == turn_pb2.STOP_METHOD_TERMINATED


async def test_the_same_attempt_is_answered_as_the_first_time(desk: Desk) -> None:
    holder = await desk.begun()
    first = await holder.finish(stop_reason="end_turn")
    assert await holder.finish(stop_reason="end_turn") == first
    assert await holder.finish(**FAILED) == first
    assert await holder.finish(last_turn_seq=99) == first
    assert len(await desk.transcript()) == 3


async def test_another_attempt_finds_the_turn_ended(desk: Desk) -> None:
    holder = await desk.begun()
    await holder.finish()
    with pytest.raises(MoorageError) as refusal:
        await replace(holder, attempt_id="a2").finish()
    assert refusal.value.reason_name == "TURN_ENDED"


async def test_a_turn_does_not_end_before_its_records_are_stored(desk: Desk) -> None:
    holder = await desk.begun()
    await holder.append(1)
    with pytest.raises(MoorageError) as refusal:
        await holder.finish(last_turn_seq=3)
    assert refusal.value.reason == RecordsMissing.reason
    assert refusal.value.metadata == {"turn_id": "t1", "last_turn_seq": "3", "stored": "1"}
    assert (await desk.read_turn()).state is TurnState.RUNNING
    await holder.append(2, 3)
    await holder.finish(last_turn_seq=3)


async def test_a_turn_that_is_not_begun_is_not_finished(desk: Desk) -> None:
    await desk.session()
    await desk.turn()
    with pytest.raises(MoorageError) as refusal:
        await desk.holder().finish()
    assert refusal.value.reason_name == "TURN_NOT_BEGUN"
    assert (await desk.read_turn()).state is TurnState.ADMITTED


async def test_after_an_end_the_session_takes_the_next_turn(desk: Desk) -> None:
    holder = await desk.begun()
    await holder.finish()
    await desk.turn("t2")
    await replace(holder, turn_id="t2", attempt_id="a2").begin()
    assert (await desk.read_turn("t2")).first_seq == 4


async def test_a_turn_ended_by_a_conflict_is_what_its_holder_is_told(desk: Desk) -> None:
    holder = await desk.begun()
    await holder.append(1)
    await holder.append(1, prefix="other")
    answer = await holder.finish(last_turn_seq=1)
    assert (answer.turn.state, answer.turn.end_reason) == (
        turn_pb2.TURN_STATE_FAILED,
        turn_pb2.END_REASON_RECORD_CONFLICT,
    )


@pytest.mark.parametrize(
    ("field", "fields"),
    [
        ("state", {"state": turn_pb2.TURN_STATE_UNSPECIFIED}),
        ("state", {"state": turn_pb2.TURN_STATE_RUNNING}),
        ("state", {"state": turn_pb2.TURN_STATE_QUEUED}),
        ("end_reason", {"state": turn_pb2.TURN_STATE_LOST, "end_reason": turn_pb2.END_REASON_LEASE_LOST}),
        ("state", {"state": 77}),
        ("end_reason", {"end_reason": turn_pb2.END_REASON_UNSPECIFIED}),
        ("end_reason", {"end_reason": turn_pb2.END_REASON_USER_STOP}),
        ("end_reason", {"end_reason": 77}),
        ("end_reason", {**FAILED, "end_reason": turn_pb2.END_REASON_NO_RUNNER}),
        ("end_reason", {**FAILED, "end_reason": turn_pb2.END_REASON_RECORD_CONFLICT}),
        ("error.code", {**FAILED, "error": None}),
        ("error.code", {**FAILED, "error": turn_pb2.TurnError(message="no code")}),
        ("error", {"error": ERROR}),
        ("error", {**FAILED, "error": turn_pb2.TurnError(code="X", message="x" * 70_000)}),
        ("stop_method", {"stop_method": turn_pb2.STOP_METHOD_KILLED}),
        (
            "stop_method",
            {"state": turn_pb2.TURN_STATE_STOPPED, "end_reason": turn_pb2.END_REASON_CLOSED},
        ),
        ("last_turn_seq", {"last_turn_seq": -1}),
        ("stop_reason", {"stop_reason": "\0"}),
        ("runtime_after", {"runtime_after": 77}),
    ],
)
async def test_an_ending_that_makes_no_sense_names_the_field(
    desk: Desk, field: str, fields: dict[str, Any]
) -> None:
    holder = await desk.begun()
    with pytest.raises(InvalidArgument) as refusal:
        await holder.finish(**fields)
    assert [violation.field for violation in refusal.value.violations] == [field]
    assert (await desk.read_turn()).state is TurnState.RUNNING


def test_every_state_and_reason_is_taken_exactly_where_it_belongs() -> None:
    own = {EndReason.NO_RUNNER, EndReason.QUEUE_EXPIRED, EndReason.RECORD_CONFLICT}
    for state in TurnState:
        for end_reason in EndReason:
            ending = Ending(
                state,
                end_reason,
                error=ERROR if state is TurnState.FAILED else None,
                stop_method="KILLED" if state is TurnState.STOPPED else None,
            )
            belongs = end_reason in ENDINGS.get(state, frozenset()) - own
            if state is TurnState.LOST:
                belongs = end_reason is EndReason.EXECUTION_MISSING
            assert taken(ending) == belongs, ending


def taken(ending: Ending) -> bool:
    try:
        return check_reported(ending) is ending
    except InvalidArgument:
        return False


async def test_pieces_of_text_keep_their_order(desk: Desk) -> None:
    holder = await desk.begun()
    await holder.append(*range(1, 51))
    await holder.finish(last_turn_seq=50)
    bodies = [record.body for record in await desk.transcript() if record.turn_seq]
    assert bodies == [message(f"text {number}").SerializeToString() for number in range(1, 51)]
