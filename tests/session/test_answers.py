"""Answers, expiry and cancellation: the first decision wins, with one record, and the runner is to be told."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest
from moorage.common.v1 import record_pb2, turn_pb2

from services.common.database import Database
from services.common.errors import InvalidArgument, MoorageError
from services.common.settings import DatabaseSettings
from services.session.expiry import InteractionExpiry
from services.session.interactions import InteractionNotPending, InteractionState
from services.session.journal.rules import SessionKey
from services.session.requests import RequestIdReused
from services.session.store.interactions import InteractionStore
from services.session.turns import TurnState
from tests.session.desks import Desk, Holder
from tests.session.questions import answer, check_told, closings, read, run_out, undelivered
from tests.session.starts import writer_of
from tests.session.stops import stop
from tests.session.tables import counts


async def waiting(desk: Desk, *interaction_ids: str) -> Holder:
    """The holder of a turn that waits for answers to these."""
    holder = await desk.begun()
    for turn_seq, interaction_id in enumerate(interaction_ids, 1):
        await holder.ask(turn_seq, interaction_id)
    return holder


@pytest.mark.parametrize("option_id", ["yes", "no"])
async def test_an_answer_is_stored_with_its_record_and_the_turn_goes_on(desk: Desk, option_id: str) -> None:
    await waiting(desk, "q1")
    told = len(desk.changed)
    settled = await answer(desk, "q1", option_id)
    assert (settled.state, settled.option_id, settled.settled_by) == (
        InteractionState.ANSWERED,
        option_id,
        "client",
    )
    assert settled.settle_time is not None
    assert (await desk.read_turn()).state is TurnState.RUNNING
    assert await closings(desk) == [
        record_pb2.InteractionClosed(
            interaction_id="q1",
            outcome=record_pb2.INTERACTION_OUTCOME_ANSWERED,
            option_id=option_id,
            settled_by="client",
        )
    ]
    assert await undelivered(desk) == ["q1"]
    assert desk.changed[told:] == [SessionKey("default", "s1")]
    await check_told(desk)


async def test_a_turn_waits_until_its_last_question_is_settled(desk: Desk) -> None:
    await waiting(desk, "q1", "q2", "q3")
    await answer(desk, "q2", "no")
    turn = await desk.read_turn()
    assert (turn.state, turn.pending_interaction_ids) == (TurnState.AWAITING_INPUT, ["q1", "q3"])
    await answer(desk, "q1", "yes")
    await answer(desk, "q3", "yes")
    assert (await desk.read_turn()).state is TurnState.RUNNING
    await check_told(desk)


async def test_a_late_answer_is_told_what_was_decided_and_changes_nothing(
    desk: Desk, database_url: str
) -> None:
    await waiting(desk, "q1")
    await answer(desk, "q1", "no")
    before = await counts(database_url)
    for option_id in ("yes", "no", "unknown"):
        with pytest.raises(InteractionNotPending) as late:
            await answer(desk, "q1", option_id, request_id=f"r {option_id}")
        assert late.value.metadata == {
            "session_id": "s1",
            "interaction_id": "q1",
            "outcome": "ANSWERED",
            "option_id": "no",
            "settled_by": "client",
        }
    assert await counts(database_url) == before
    assert (await read(desk)).option_id == "no"


async def test_the_same_call_twice_is_answered_as_the_first_time(desk: Desk) -> None:
    await waiting(desk, "q1")
    first = await answer(desk, "q1", "yes", request_id="r1")
    assert await answer(desk, "q1", "yes", request_id="r1") == first
    with pytest.raises(RequestIdReused):
        await answer(desk, "q1", "no", request_id="r1")
    assert len(await closings(desk)) == 1


async def test_only_an_offered_option_is_an_answer(desk: Desk, database_url: str) -> None:
    await waiting(desk, "q1")
    before = await counts(database_url)
    with pytest.raises(InvalidArgument) as refusal:
        await answer(desk, "q1", "maybe", request_id="r1")
    assert [violation.field for violation in refusal.value.violations] == ["option_id"]
    assert (await counts(database_url), await undelivered(desk)) == (before, [])
    # A refusal is not remembered: the same id may still be used.
    assert (await answer(desk, "q1", "yes", request_id="r1")).option_id == "yes"


async def test_only_what_is_there_is_answered(desk: Desk) -> None:
    await waiting(desk, "q1")
    for interaction_id, session_id, reason in [
        ("q9", "s1", "INTERACTION_NOT_FOUND"),
        ("q1", "s9", "SESSION_NOT_FOUND"),
    ]:
        with pytest.raises(MoorageError) as refusal:
            await answer(desk, interaction_id, "yes", session_id)
        assert refusal.value.reason_name == reason


async def test_a_question_expires_and_the_runner_is_to_be_told(desk: Desk) -> None:
    await waiting(desk, "q1", "q2")
    told: list[str] = []
    expiry = InteractionExpiry(desk.interactions, lambda: told.append("expired"))
    assert 0.9 < await expiry.step() <= 1.0
    assert (await read(desk)).state is InteractionState.PENDING
    await run_out(desk, "q1")
    await expiry.step()
    late = await read(desk)
    assert (late.state, late.option_id, late.settled_by) == (InteractionState.EXPIRED, "", "expiry")
    assert (await desk.read_turn()).pending_interaction_ids == ["q2"]
    assert (await undelivered(desk), told) == (["q1"], ["expired"])
    await expiry.step()
    assert [closed.outcome for closed in await closings(desk)] == [record_pb2.INTERACTION_OUTCOME_EXPIRED]
    await check_told(desk)


async def test_a_session_that_cannot_be_changed_holds_up_the_expiry_of_no_other(
    desk: Desk, database_settings: DatabaseSettings
) -> None:
    await waiting(desk, "q1")
    other = await desk.begun("s2")
    await other.ask(1)
    for session_id in ("s1", "s2"):
        await run_out(desk, "q1", session_id)
    hasty = database_settings.model_copy(update={"database_statement_timeout": 0.2})
    async with desk.database.transaction() as connection, Database(hasty) as database:
        await connection.execute("SELECT FROM session.sessions WHERE session_id = 's1' FOR UPDATE")
        store = InteractionStore(database, writer_of(database))
        assert await InteractionExpiry(store, lambda: None).step() == 1.0
    assert (await read(desk, "q1", "s1")).state is InteractionState.PENDING
    assert (await read(desk, "q1", "s2")).state is InteractionState.EXPIRED


async def test_an_answer_after_its_time_is_late_whoever_notices_first(desk: Desk, database_url: str) -> None:
    await waiting(desk, "q1")
    await run_out(desk, "q1")
    with pytest.raises(InteractionNotPending) as late:
        await answer(desk, "q1", "yes", request_id="r1")
    assert late.value.metadata["outcome"] == "EXPIRED"
    assert (await read(desk)).state is InteractionState.EXPIRED
    assert (await counts(database_url))["request_ids"] == 0
    assert await undelivered(desk) == ["q1"]
    await check_told(desk)


async def finish_failed(holder: Holder) -> None:
    await holder.finish(
        last_turn_seq=3,
        state=turn_pb2.TURN_STATE_FAILED,
        end_reason=turn_pb2.END_REASON_AGENT_EXITED,
        error=turn_pb2.TurnError(code="AGENT_EXITED", message="gone"),
    )


async def finish_stopped(holder: Holder) -> None:
    await holder.finish(
        last_turn_seq=3,
        state=turn_pb2.TURN_STATE_STOPPED,
        end_reason=turn_pb2.END_REASON_DRAINED,
        stop_method=turn_pb2.STOP_METHOD_AGENT_CONFIRMED,
    )


async def finish_completed(holder: Holder) -> None:
    await holder.finish(last_turn_seq=3)


async def finish_missing(holder: Holder) -> None:
    await holder.finish(state=turn_pb2.TURN_STATE_LOST, end_reason=turn_pb2.END_REASON_EXECUTION_MISSING)


async def contradict(holder: Holder) -> None:
    await holder.append(1)


async def take_over(holder: Holder) -> None:
    with pytest.raises(MoorageError):
        await holder.desk.holder(token=2, attempt_id="a2", name="runner/2").begin()


async def watch_over(holder: Holder) -> None:
    watchdog = holder.desk.holder(token=2, role="service", name="session/1")
    await holder.desk.journal.show(watchdog.key, watchdog.grant)


@pytest.mark.parametrize(
    ("end", "settled_by"),
    [
        (finish_completed, "AGENT_ENDED"),
        (finish_failed, "AGENT_EXITED"),
        (finish_stopped, "DRAINED"),
        (finish_missing, "EXECUTION_MISSING"),
        (contradict, "RECORD_CONFLICT"),
        (take_over, "TAKEN_OVER"),
        (watch_over, "LEASE_LOST"),
    ],
)
async def test_every_ending_cancels_what_waits_and_voids_what_was_not_delivered(
    desk: Desk, end: Callable[[Holder], Awaitable[None]], settled_by: str
) -> None:
    holder = await waiting(desk, "q1", "q2", "q3")
    await answer(desk, "q2", "yes")
    await end(holder)
    turn = await desk.read_turn()
    assert (turn.state.in_progress, turn.pending_interaction_ids) == (False, [])
    cancelled = [await read(desk, name) for name in ("q1", "q3")]
    assert {(each.state, each.settled_by) for each in cancelled} == {(InteractionState.CANCELLED, settled_by)}
    assert (await read(desk, "q2")).state is InteractionState.ANSWERED
    assert await undelivered(desk) == []
    assert (await desk.transcript())[-1].kind == "turn_ended"
    with pytest.raises(InteractionNotPending) as late:
        await answer(desk, "q1", "yes")
    assert (late.value.metadata["outcome"], late.value.metadata["settled_by"]) == ("CANCELLED", settled_by)
    await check_told(desk)


async def test_a_stop_cancels_what_waits_once_and_voids_what_was_not_delivered(desk: Desk) -> None:
    await waiting(desk, "q1", "q2", "q3")
    await answer(desk, "q2", "yes")
    command = await stop(desk, "t1")
    turn = await desk.read_turn()
    assert (turn.state, turn.stopping, turn.pending_interaction_ids) == (TurnState.RUNNING, True, [])
    assert await undelivered(desk) == []
    assert (await stop(desk, "t1")).command_id == command.command_id
    assert [(closed.interaction_id, closed.settled_by) for closed in await closings(desk)] == [
        ("q2", "client"),
        ("q1", command.command_id),
        ("q3", command.command_id),
    ]
    with pytest.raises(InteractionNotPending) as late:
        await answer(desk, "q3", "yes")
    assert late.value.metadata["outcome"] == "CANCELLED"
    await check_told(desk)
