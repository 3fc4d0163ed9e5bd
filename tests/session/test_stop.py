"""StopTurn's transaction (S1 to S5): what a Stop hits, what it stores, and what settles it (S10)."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from moorage.common.v1 import record_pb2, turn_pb2

from services.common.errors import MoorageError
from services.session.commands import Command
from services.session.journal.rules import SessionKey
from services.session.store.commands import CommandStore
from services.session.turns import EndReason, TurnState
from tests.databases import execute
from tests.session.desks import Desk, Holder
from tests.session.stops import PATIENCE, all_commands, read, stop
from tests.session.tables import counts

# How the turns of the session stand before the Stop, oldest first.
NOTHING = ""
ADMITTED = "t1 admitted"
BEGUN = "t1 begun"
ENDED = "t1 ended"
ENDED_THEN_ADMITTED = "t1 ended, t2 admitted"
ENDED_THEN_BEGUN = "t1 ended, t2 begun"


async def arrange(desk: Desk, stand: str) -> None:
    await desk.session()
    for each in filter(None, stand.split(", ")):
        turn_id, state = each.split()
        await desk.turn(turn_id)
        holder = desk.holder(turn_id=turn_id, attempt_id=f"a_{turn_id}")
        if state != "admitted":
            await holder.begin()
        if state == "ended":
            await holder.finish()


def told(command: Command) -> tuple[str | None, ...]:
    return command.turn_id, command.state, command.outcome


@pytest.mark.parametrize(
    ("stand", "named", "expected", "new_records"),
    [
        # named: queued or in progress, that one
        (ADMITTED, "t1", ("t1", "APPLIED", "STOPPED"), 1),
        (BEGUN, "t1", ("t1", "PENDING", None), 0),
        (ENDED_THEN_ADMITTED, "t2", ("t2", "APPLIED", "STOPPED"), 1),
        (ENDED_THEN_BEGUN, "t2", ("t2", "PENDING", None), 0),
        # named: ended, and nothing is in progress
        (ENDED, "t1", ("t1", "OBSOLETE", "NOT_RUNNING"), 0),
        # named: never admitted
        (NOTHING, "t1", ("t1", "APPLIED", "WITHDRAWN"), 0),
        (ENDED, "t2", ("t2", "APPLIED", "WITHDRAWN"), 0),
        (BEGUN, "t2", ("t2", "APPLIED", "WITHDRAWN"), 0),
        # unnamed: the one in progress, if any
        (ADMITTED, "", ("t1", "APPLIED", "STOPPED"), 1),
        (BEGUN, "", ("t1", "PENDING", None), 0),
        (ENDED_THEN_BEGUN, "", ("t2", "PENDING", None), 0),
        (NOTHING, "", (None, "OBSOLETE", "NOT_RUNNING"), 0),
        (ENDED, "", (None, "OBSOLETE", "NOT_RUNNING"), 0),
    ],
)
async def test_what_a_stop_hits(
    desk: Desk,
    database_url: str,
    stand: str,
    named: str,
    expected: tuple[str | None, ...],
    new_records: int,
) -> None:
    await arrange(desk, stand)
    before = await counts(database_url)
    command = await stop(desk, named)
    assert told(command) == expected
    assert command.settled == (command.state not in ("PENDING", "CLAIMED"))
    after = await counts(database_url)
    assert after["commands"] == 1
    assert after["records"] - before["records"] == new_records
    assert after["turns"] == before["turns"]
    stopped = [turn for turn in ("t1", "t2") if turn in stand and (await desk.read_turn(turn)).stopping]
    assert stopped == ([expected[0]] if command.state == "PENDING" else [])


@pytest.mark.parametrize("stand", [ENDED_THEN_ADMITTED, ENDED_THEN_BEGUN])
async def test_an_ended_turn_is_not_mixed_up_with_the_one_in_progress(
    desk: Desk, database_url: str, stand: str
) -> None:
    await arrange(desk, stand)
    before, running = await counts(database_url), await desk.read_turn("t2")
    with pytest.raises(MoorageError) as refusal:
        await stop(desk, "t1", request_id="r1")
    assert refusal.value.reason_name == "TURN_MISMATCH"
    assert refusal.value.metadata == {"session_id": "s1", "expected_turn_id": "t1", "turn_id": "t2"}
    assert (await counts(database_url), await desk.read_turn("t2")) == (before, running)


async def test_a_session_that_does_not_exist_gets_no_command(desk: Desk, database_url: str) -> None:
    with pytest.raises(MoorageError) as refusal:
        await stop(desk, "t1", request_id="r1")
    assert refusal.value.reason_name == "SESSION_NOT_FOUND"
    assert not any((await counts(database_url)).values())


@pytest.mark.parametrize("stand", [ADMITTED, BEGUN, ENDED_THEN_BEGUN])
async def test_an_unnamed_stop_spares_a_turn_that_came_after_it(desk: Desk, stand: str) -> None:
    await arrange(desk, stand)
    busy = await desk.read_turn("t2" if "t2" in stand else "t1")
    command = await stop(desk, age=60.0)
    assert told(command) == (None, "OBSOLETE", "SUPERSEDED_BY_NEWER_TURN")
    assert await desk.read_turn(busy.turn_id) == busy
    assert told(await stop(desk, busy.turn_id, age=60.0))[0] == busy.turn_id


async def test_a_turn_that_nobody_began_ends_with_the_stop(desk: Desk) -> None:
    await arrange(desk, ADMITTED)
    command = await stop(desk, "t1")
    turn = await desk.read_turn()
    assert (turn.state, turn.end_reason, turn.stop_method) == (
        TurnState.STOPPED,
        EndReason.USER_STOP,
        "NOT_BEGUN",
    )
    assert (turn.stopping, turn.end_time is not None) == (False, True)
    assert (command.stop_method, command.runtime_after) == ("NOT_BEGUN", None)
    records = await desk.transcript()
    assert [record.record_id for record in records] == ["t1/user_message", "t1/turn_ended"]
    assert turn.last_seq == records[-1].seq
    assert desk.changed[-1] == SessionKey("default", "s1")
    with pytest.raises(MoorageError) as refusal:
        await desk.holder().begin()
    assert refusal.value.reason_name == "TURN_ENDED"
    assert refusal.value.metadata["end_reason"] == "USER_STOP"
    assert await desk.read_turn() == turn
    await desk.turn("t2")


async def test_a_begun_turn_is_stopping_until_it_ends(desk: Desk) -> None:
    await arrange(desk, BEGUN)
    command = await stop(desk, "t1")
    turn = await desk.read_turn()
    assert (turn.state, turn.stopping) == (TurnState.RUNNING, True)
    assert turn.stop_deadline == command.deadline
    assert command.deadline is not None
    lasts = command.deadline - command.create_time
    assert abs(lasts - timedelta(seconds=PATIENCE)) < timedelta(seconds=1)
    holder = desk.holder(attempt_id="a_t1")
    assert await holder.append(1) == [3]
    await holder.finish(last_turn_seq=1)
    turn = await desk.read_turn()
    assert (turn.stopping, turn.stop_deadline) == (False, None)


async def test_two_stops_of_a_turn_share_the_open_command(desk: Desk) -> None:
    await arrange(desk, BEGUN)
    first = await stop(desk, "t1")
    assert await stop(desk, "t1") == first
    assert await stop(desk, request_id="r1") == first
    await desk.holder(attempt_id="a_t1").finish()
    # The request that shared it goes on telling of it; a new one is about a turn that has ended.
    assert (await stop(desk, request_id="r1")).command_id == first.command_id
    late = await stop(desk, "t1")
    assert late.command_id != first.command_id
    assert len(await all_commands(desk)) == 2


async def test_a_repeated_stop_has_one_effect(desk: Desk) -> None:
    await arrange(desk, ADMITTED)
    first = await stop(desk, "t1", request_id="r1")
    await desk.turn("t2")
    assert await stop(desk, "t1", request_id="r1") == first
    with pytest.raises(MoorageError) as refusal:
        await stop(desk, "t2", request_id="r1")
    assert refusal.value.reason_name == "REQUEST_ID_REUSED"
    assert (await desk.read_turn("t2")).state is TurnState.ADMITTED
    assert await all_commands(desk) == [first]


async def test_a_refused_stop_is_not_remembered(desk: Desk) -> None:
    await arrange(desk, ENDED_THEN_BEGUN)
    with pytest.raises(MoorageError):
        await stop(desk, "t1", request_id="r1")
    await desk.holder(turn_id="t2", attempt_id="a_t2").finish()
    assert told(await stop(desk, "t1", request_id="r1")) == ("t1", "OBSOLETE", "NOT_RUNNING")


async def test_a_withdrawn_turn_is_not_started_for_ten_minutes(desk: Desk, database_url: str) -> None:
    await arrange(desk, NOTHING)
    await stop(desk, "t1")
    before = await counts(database_url)
    with pytest.raises(MoorageError) as refusal:
        await desk.turn("t1")
    assert (refusal.value.reason_name, refusal.value.metadata["turn_id"]) == ("TURN_WITHDRAWN", "t1")
    assert await counts(database_url) == before
    await desk.turn("t2")
    await stop(desk, "t2")
    later = "UPDATE session.commands SET settle_time = settle_time - $1::interval WHERE turn_id = 't1'"
    await execute(database_url, later, timedelta(minutes=10))
    assert (await desk.turn("t1")).state is TurnState.ADMITTED


async def completed(holder: Holder) -> None:
    await holder.finish()


async def stopped(holder: Holder) -> None:
    await holder.finish(
        state=turn_pb2.TURN_STATE_STOPPED,
        end_reason=turn_pb2.END_REASON_USER_STOP,
        stop_method=turn_pb2.STOP_METHOD_AGENT_CONFIRMED,
        runtime_after=turn_pb2.RUNTIME_AFTER_WARM,
    )


async def failed(holder: Holder) -> None:
    await holder.finish(
        state=turn_pb2.TURN_STATE_FAILED,
        end_reason=turn_pb2.END_REASON_AGENT_EXITED,
        error=turn_pb2.TurnError(code="AGENT_EXITED"),
        runtime_after=turn_pb2.RUNTIME_AFTER_ENDED,
    )


async def contradicted(holder: Holder) -> None:
    await holder.append(1)
    await holder.append(1, prefix="other")


async def missing(holder: Holder) -> None:
    await holder.finish(
        state=turn_pb2.TURN_STATE_LOST,
        end_reason=turn_pb2.END_REASON_EXECUTION_MISSING,
        runtime_after=turn_pb2.RUNTIME_AFTER_ENDED,
    )


async def taken_over(holder: Holder) -> None:
    watchdog = replace(holder, token=2, role="service")
    await watchdog.desk.journal.show(watchdog.key, watchdog.grant)


@pytest.mark.parametrize(
    ("end", "expected", "how"),
    [
        (stopped, ("APPLIED", "STOPPED"), ("AGENT_CONFIRMED", "WARM")),
        (completed, ("OBSOLETE", "NOT_RUNNING"), (None, None)),
        (failed, ("OBSOLETE", "FAILED"), (None, "ENDED")),
        (contradicted, ("OBSOLETE", "FAILED"), (None, None)),
        (missing, ("APPLIED", "LOST"), (None, "ENDED")),
        (taken_over, ("APPLIED", "LOST"), (None, None)),
    ],
)
async def test_the_end_of_a_turn_settles_its_command(
    desk: Desk, end: Any, expected: tuple[str, str], how: tuple[str | None, str | None]
) -> None:
    await arrange(desk, BEGUN)
    command = await stop(desk, "t1")
    holder = desk.holder(attempt_id="a_t1")
    await end(holder)
    settled = await read(desk, command.command_id)
    assert (settled.state, settled.outcome) == expected
    assert (settled.stop_method, settled.runtime_after) == how
    turn = await desk.read_turn()
    assert (turn.stopping, turn.stop_method, turn.runtime_after) == (False, *how)
    assert settled.settle_time is not None
    # Told again, nothing changes.
    with_records = await desk.transcript()
    if end is not taken_over:
        await stopped(holder)
    assert await read(desk, command.command_id) == settled
    assert await desk.transcript() == with_records


async def test_a_turn_that_its_holder_does_not_run_is_lost_with_the_reason(desk: Desk) -> None:
    await arrange(desk, BEGUN)
    holder = desk.holder(attempt_id="a_t1")
    await holder.append(1, 2)
    await missing(holder)
    turn = await desk.read_turn()
    assert (turn.state, turn.end_reason) == (TurnState.LOST, EndReason.EXECUTION_MISSING)
    error, ended = (await desk.transcript())[-2:]
    assert (error.record_id, ended.record_id) == ("t1/error", "t1/turn_ended")
    said = record_pb2.RecordBody.FromString(error.body).error.error
    assert (said.code, said.metadata["runner_id"]) == ("EXECUTION_MISSING", "runner/1")
    assert record_pb2.RecordBody.FromString(ended.body).turn_ended.error == said
    with pytest.raises(MoorageError) as refusal:
        await replace(holder, attempt_id="another").finish(
            state=turn_pb2.TURN_STATE_LOST, end_reason=turn_pb2.END_REASON_EXECUTION_MISSING
        )
    assert refusal.value.reason_name == "TURN_ENDED"


async def test_another_attempt_does_not_lose_the_turn(desk: Desk) -> None:
    await arrange(desk, BEGUN)
    with pytest.raises(MoorageError) as refusal:
        await missing(desk.holder(attempt_id="another"))
    assert refusal.value.reason_name == "TURN_ALREADY_BEGUN"
    assert (await desk.read_turn()).state is TurnState.RUNNING


async def test_settled_commands_are_forgotten_after_a_while_and_open_ones_never(
    desk: Desk, database_url: str
) -> None:
    await arrange(desk, ENDED_THEN_BEGUN)
    pending, withdrawn = await stop(desk, "t2"), await stop(desk, "t3")
    store = CommandStore(desk.database)
    assert not await store.purge(timedelta(days=7))
    assert len(await all_commands(desk)) == 2
    await execute(database_url, "UPDATE session.commands SET create_time = create_time - interval '8 days'")
    assert not await store.purge(timedelta(days=7))
    await execute(
        database_url,
        "UPDATE session.commands SET settle_time = settle_time - interval '8 days' WHERE settle_time IS NOT NULL",
    )
    assert not await store.purge(timedelta(days=7))
    assert [command.command_id for command in await all_commands(desk)] == [pending.command_id]
    with pytest.raises(MoorageError) as refusal:
        await read(desk, withdrawn.command_id)
    assert refusal.value.reason_name == "COMMAND_NOT_FOUND"
