"""The queue (T2): who waits, who gets the slot, and what ends there."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest
from moorage.common.v1 import turn_pb2

from services.common.errors import MoorageError
from services.session.expiry import QueueExpiry
from services.session.queue import QueueBounds
from services.session.requests import RequestKey
from services.session.store.queue import QueueStore
from services.session.turns import IfBusy, Turn, TurnState
from tests.session import samples
from tests.session.desks import Desk, Holder
from tests.session.queues import close, enqueue, expire, interrupt, queue, run_out, story
from tests.session.starts import Starter
from tests.session.stops import all_commands, stop
from tests.session.tables import counts

STOPPED = {
    "state": turn_pb2.TURN_STATE_STOPPED,
    "end_reason": turn_pb2.END_REASON_USER_STOP,
    "stop_method": turn_pb2.STOP_METHOD_AGENT_CONFIRMED,
}
FAILED = {
    "state": turn_pb2.TURN_STATE_FAILED,
    "end_reason": turn_pb2.END_REASON_AGENT_EXITED,
    "error": turn_pb2.TurnError(code="AGENT_EXITED", message="gone"),
}


async def begun(desk: Desk, turn_id: str) -> Holder:
    holder = desk.holder(turn_id=turn_id, attempt_id=f"a_{turn_id}")
    await holder.begin()
    return holder


def ending(turn: Turn) -> tuple[str, str | None, str | None]:
    return turn.state, turn.end_reason, turn.stop_method


async def test_turns_wait_in_order_and_are_told_their_place(desk: Desk) -> None:
    holder = await desk.begun()
    second, third = await enqueue(desk, "t2"), await enqueue(desk, "t3")
    assert [(turn.state, turn.queue_position, turn.phase) for turn in (second, third)] == [
        (TurnState.QUEUED, 1, None),
        (TurnState.QUEUED, 2, None),
    ]
    assert (second.admit_time, second.first_seq, second.previous_turn_id) == (None, 0, "")
    assert second.queue_expire_time is not None
    assert second.queue_expire_time - second.create_time == pytest.approx(
        timedelta(hours=24), abs=timedelta(seconds=1)
    )
    assert await story(desk) == ["t1 user_message", "t1 turn_started"]
    listed = await desk.turns.list_newest("default", "s1", 99, 10)
    assert [(turn.turn_id, turn.queue_position) for turn in listed.items] == [("t3", 2), ("t2", 1), ("t1", 0)]
    await holder.finish()
    admitted = await desk.read_turn("t2")
    assert (admitted.state, admitted.phase, admitted.queue_position) == ("ADMITTED", "WAITING_FOR_RUNNER", 0)
    assert (admitted.previous_turn_id, admitted.first_seq, admitted.queue_expire_time) == ("t1", 4, None)
    assert admitted.admit_time is not None and admitted.admit_time > admitted.create_time
    assert (await desk.read_turn("t3")).queue_position == 1
    await (await begun(desk, "t2")).finish()
    assert await story(desk) == [
        *("t1 user_message", "t1 turn_started", "t1 turn_ended"),
        *("t2 user_message", "t2 turn_started", "t2 turn_ended", "t3 user_message"),
    ]


async def test_after_another_ending_the_queue_is_held_until_the_next_start(desk: Desk) -> None:
    holder = await desk.begun()
    await enqueue(desk, "t2")
    await holder.finish(**FAILED)
    assert (await queue(desk), (await desk.read_turn("t2")).state) == (["t2"], TurnState.QUEUED)
    at_once = await enqueue(desk, "t3")
    assert (at_once.state, await queue(desk)) == (TurnState.ADMITTED, ["t2"])
    await (await begun(desk, "t3")).finish()
    assert (await desk.read_turn("t2")).state is TurnState.ADMITTED


async def test_a_full_queue_refuses_and_interrupts_nothing(desk: Desk, database_url: str) -> None:
    await desk.begun()
    narrow = Starter(desk.database, desk.writer, QueueBounds(2, timedelta(hours=1)))
    await enqueue(desk, "t2")
    await enqueue(desk, "t3")
    before = await counts(database_url)
    for if_busy in (IfBusy.ENQUEUE, IfBusy.INTERRUPT):
        draft = replace(samples.new_turn("t4"), if_busy=if_busy)
        with pytest.raises(MoorageError) as full:
            await narrow.start(draft, RequestKey("default", "s1", "StartTurn", "r1", b""))
        assert (full.value.reason_name, full.value.metadata) == (
            "QUEUE_FULL",
            {"session_id": "s1", "limit": "2"},
        )
    assert (await counts(database_url), await queue(desk)) == (before, ["t2", "t3"])
    assert not (await desk.read_turn()).stopping
    await run_out(desk, "t3")
    await enqueue(desk, "t4")
    assert await queue(desk) == ["t2", "t4"]


async def test_an_interrupting_turn_stops_what_is_begun_and_follows_it(desk: Desk) -> None:
    holder = await desk.begun()
    await holder.ask(1)
    await enqueue(desk, "t2")
    waiting = await interrupt(desk, "t3")
    assert (waiting.state, waiting.queue_position) == (TurnState.QUEUED, 1)
    assert await queue(desk) == ["t3!", "t2"]
    stopping = await desk.read_turn()
    assert (stopping.stopping, stopping.pending_interaction_ids) == (True, [])
    [command] = await all_commands(desk)
    assert (command.turn_id, command.state) == ("t1", "PENDING")
    await holder.finish(**STOPPED, last_turn_seq=1)
    assert ending(await desk.read_turn()) == ("STOPPED", "INTERRUPTED", "AGENT_CONFIRMED")
    assert (await desk.read_turn("t3")).state is TurnState.ADMITTED
    assert await queue(desk) == ["t2"]
    [command] = await all_commands(desk)
    assert (command.state, command.outcome) == ("APPLIED", "STOPPED")


async def test_an_interrupt_takes_the_slot_of_a_turn_that_nobody_began(desk: Desk) -> None:
    await desk.session()
    await desk.turn("t1")
    await enqueue(desk, "t2")
    taken = await interrupt(desk, "t3")
    assert (taken.state, taken.previous_turn_id) == (TurnState.ADMITTED, "t1")
    assert ending(await desk.read_turn()) == ("STOPPED", "INTERRUPTED", "NOT_BEGUN")
    assert await queue(desk) == ["t2"]
    assert await story(desk) == ["t1 user_message", "t1 turn_ended", "t3 user_message"]
    [command] = await all_commands(desk)
    assert (command.turn_id, command.outcome, command.stop_method) == ("t1", "STOPPED", "NOT_BEGUN")


async def test_an_interrupt_of_an_idle_session_runs_at_once(desk: Desk) -> None:
    await (await desk.begun()).finish()
    assert (await interrupt(desk, "t2")).state is TurnState.ADMITTED
    assert await all_commands(desk) == []


async def test_of_several_interrupts_the_newest_is_first_and_each_has_its_turn(desk: Desk) -> None:
    holder = await desk.begun()
    for name in ("t2", "t3"):
        await interrupt(desk, name)
    assert await queue(desk) == ["t3!", "t2!"]
    assert len(await all_commands(desk)) == 1
    await holder.finish()
    assert ending(await desk.read_turn()) == ("COMPLETED", "AGENT_ENDED", None)
    await (await begun(desk, "t3")).finish(**FAILED)
    assert (await desk.read_turn("t2")).state is TurnState.ADMITTED


@pytest.mark.parametrize("named", ["", "t1"])
@pytest.mark.parametrize("stop_first", [False, True])
async def test_a_manual_stop_holds_what_interrupted_before_it_and_nothing_after_it(
    desk: Desk, named: str, stop_first: bool
) -> None:
    holder = await desk.begun()
    await enqueue(desk, "t2")
    if stop_first:
        await stop(desk, named)
    await interrupt(desk, "t3")
    if not stop_first:
        command = await stop(desk, named, request_id="r1")
        assert await stop(desk, named, request_id="r1") == command
    assert len(await all_commands(desk)) == 1
    assert await queue(desk) == (["t3!", "t2"] if stop_first else ["t3", "t2"])
    await holder.finish(**STOPPED)
    # The first of them says why.
    assert (await desk.read_turn()).end_reason == ("USER_STOP" if stop_first else "INTERRUPTED")
    assert (await desk.read_turn("t3")).state == ("ADMITTED" if stop_first else "QUEUED")


@pytest.mark.parametrize("how", ["lost", "taken over", "failed"])
async def test_an_interrupting_turn_follows_whatever_ending(desk: Desk, how: str) -> None:
    holder = await desk.begun()
    await interrupt(desk, "t2")
    await enqueue(desk, "t3")
    if how == "taken over":
        with pytest.raises(MoorageError, match="has not been begun"):
            await desk.holder(token=2, turn_id="t2", attempt_id="a2").begin()
    else:
        await holder.finish(**(FAILED if how == "failed" else LOST))
    assert (await desk.read_turn()).state is (TurnState.FAILED if how == "failed" else TurnState.LOST)
    assert ((await desk.read_turn("t2")).state, await queue(desk)) == (TurnState.ADMITTED, ["t3"])
    await desk.holder(token=2, turn_id="t2", attempt_id="a2").begin()


LOST = {
    "state": turn_pb2.TURN_STATE_LOST,
    "end_reason": turn_pb2.END_REASON_EXECUTION_MISSING,
}


async def test_what_has_waited_too_long_is_never_admitted(desk: Desk) -> None:
    holder = await desk.begun()
    for name in ("t2", "t3", "t4"):
        await enqueue(desk, name)
    for name in ("t2", "t4"):
        await run_out(desk, name)
    await holder.finish()
    expired = await desk.read_turn("t2")
    assert ending(expired) == ("FAILED", "QUEUE_EXPIRED", None)
    assert expired.error is not None
    assert turn_pb2.TurnError.FromString(expired.error).code == "QUEUE_EXPIRED"
    assert (expired.admit_time, expired.first_seq, expired.last_seq) == (None, 4, 5)
    assert ending(await desk.read_turn("t4"))[:2] == ("FAILED", "QUEUE_EXPIRED")
    admitted = await desk.read_turn("t3")
    assert (admitted.state, admitted.previous_turn_id) == (TurnState.ADMITTED, "t1")
    assert (await story(desk))[2:] == [
        "t1 turn_ended",
        *("t2 error", "t2 turn_ended", "t4 error", "t4 turn_ended"),
        "t3 user_message",
    ]


async def test_the_loop_ends_what_has_waited_too_long(desk: Desk) -> None:
    await desk.begun()
    store = QueueStore(desk.database, desk.writer)
    expiry = QueueExpiry(store)
    assert await expiry.step() == 1.0
    await enqueue(desk, "t2")
    assert await expiry.step() == 1.0
    await run_out(desk, "t2")
    assert await expiry.step() == 0.0
    assert ending(await desk.read_turn("t2")) == ("FAILED", "QUEUE_EXPIRED", None)
    assert (await desk.read_turn()).state is TurnState.RUNNING
    assert await store.next_expiry() is None


async def test_a_named_stop_withdraws_from_the_queue_and_spares_the_turn_in_progress(desk: Desk) -> None:
    await desk.begun()
    await enqueue(desk, "t2")
    await interrupt(desk, "t3")
    command = await stop(desk, "t2")
    assert (command.turn_id, command.state, command.outcome) == ("t2", "APPLIED", "STOPPED")
    assert command.stop_method == "NOT_BEGUN"
    assert ending(await desk.read_turn("t2")) == ("STOPPED", "USER_STOP", "NOT_BEGUN")
    assert await queue(desk) == ["t3!"]
    assert (await story(desk))[2:] == ["t2 turn_ended"]
    with pytest.raises(MoorageError) as mismatch:
        await stop(desk, "t2")
    assert mismatch.value.reason_name == "TURN_MISMATCH"


async def test_an_unnamed_stop_never_hits_a_queued_turn(desk: Desk) -> None:
    holder = await desk.begun()
    await enqueue(desk, "t2")
    await holder.finish(**FAILED)
    command = await stop(desk)
    assert (command.turn_id, command.outcome) == (None, "NOT_RUNNING")
    assert await queue(desk) == ["t2"]


async def test_the_arrival_rule_looks_at_when_the_slot_was_taken(desk: Desk) -> None:
    holder = await desk.begun()
    await enqueue(desk, "t2")
    # It arrived after the turn was queued, and before the turn took the slot.
    async with desk.database.connection() as connection:
        await connection.execute("UPDATE session.turns SET create_time = create_time - interval '1 h'")
    await holder.finish()
    command = await stop(desk, age=60.0)
    assert (command.turn_id, command.outcome) == (None, "SUPERSEDED_BY_NEWER_TURN")
    assert (await stop(desk)).turn_id == "t2"


async def test_closing_ends_the_queue_and_promotes_nothing(desk: Desk) -> None:
    holder = await desk.begun()
    await enqueue(desk, "t2")
    await interrupt(desk, "t3")
    await close(desk)
    for name in ("t2", "t3"):
        assert ending(await desk.read_turn(name)) == ("STOPPED", "CLOSED", "NOT_BEGUN")
    assert (await story(desk))[2:] == ["t3 turn_ended", "t2 turn_ended"]
    for if_busy in IfBusy:
        with pytest.raises(MoorageError) as refused:
            await desk.turn("t4", if_busy=if_busy)
        assert refused.value.reason_name == "SESSION_CLOSED"
    await holder.finish(**STOPPED)
    assert (await desk.read_turn()).state is TurnState.STOPPED
    assert await queue(desk) == []


@pytest.mark.parametrize("if_busy", list(IfBusy))
async def test_a_repeated_start_has_one_effect_in_every_mode(
    desk: Desk, database_url: str, if_busy: IfBusy
) -> None:
    await desk.session()
    if if_busy is not IfBusy.REJECT:
        await desk.turn("t1")
        await desk.holder().begin()
    first = await desk.turn("t2", if_busy=if_busy, request_id="r1")
    before = await counts(database_url)
    assert await desk.turn("t2", if_busy=if_busy, request_id="r1") == first
    with pytest.raises(MoorageError) as reused:
        await desk.turn("t3", if_busy=if_busy, request_id="r1")
    assert reused.value.reason_name == "REQUEST_ID_REUSED"
    assert await counts(database_url) == before
    await stop(desk, "t2")
    assert (await desk.turn("t2", if_busy=if_busy, request_id="r1")).state is TurnState.STOPPED
    assert (await counts(database_url))["turns"] == before["turns"]


async def test_refusals_of_the_other_modes_are_the_same(desk: Desk) -> None:
    holder = await desk.begun()
    await stop(desk, "t9")
    for if_busy in (IfBusy.ENQUEUE, IfBusy.INTERRUPT):
        with pytest.raises(MoorageError) as taken:
            await desk.turn("t1", if_busy=if_busy)
        with pytest.raises(MoorageError) as withdrawn:
            await desk.turn("t9", if_busy=if_busy)
        assert (taken.value.reason_name, withdrawn.value.reason_name) == (
            "TURN_ALREADY_EXISTS",
            "TURN_WITHDRAWN",
        )
    assert not (await desk.read_turn()).stopping
    await holder.ask(1, "q1")
    await enqueue(desk, "t2")
    with pytest.raises(MoorageError) as busy:
        await desk.turn("t3")
    assert busy.value.metadata == {
        "session_id": "s1",
        "turn_id": "t1",
        "state": "AWAITING_INPUT",
        "phase": "PREPARING_WORKSPACE",
        "interaction_id": "q1",
    }


async def test_a_queued_turn_is_begun_by_nobody(desk: Desk) -> None:
    await desk.begun()
    await enqueue(desk, "t2")
    holder = desk.holder(turn_id="t2", attempt_id="a2")
    for write in (holder.begin, holder.finish):
        with pytest.raises(MoorageError) as refused:
            await write()
        assert refused.value.reason_name == "TURN_NOT_BEGUN"
    assert await holder.append(1) == ["TURN_NOT_BEGUN"]
    assert await queue(desk) == ["t2"]
    await expire(desk)
    assert await queue(desk) == ["t2"]


async def test_the_native_session_is_that_of_the_turn_before_not_of_a_later_start(desk: Desk) -> None:
    first = await desk.begun()
    await first.report(phase=turn_pb2.TURN_PHASE_PROMPTED, observation={"native_session_id": "n1"})
    await enqueue(desk, "t2")
    await interrupt(desk, "t3")
    await first.finish(**STOPPED)
    third = await begun(desk, "t3")
    await third.report(phase=turn_pb2.TURN_PHASE_PROMPTED, observation={"native_session_id": "n3"})
    await third.finish()
    second = desk.holder(turn_id="t2", attempt_id="a2")
    answer = await second.begin()
    assert (answer.native_session_id, answer.previous_turn_id) == ("n3", "t3")
