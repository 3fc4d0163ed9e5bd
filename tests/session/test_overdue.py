"""The session service's own Stops: of turns whose runner does not end them by itself."""

from __future__ import annotations

from datetime import timedelta

import pytest
from moorage.common.v1 import turn_pb2

from services.session.commands import CommandOutcome
from services.session.recovery.overdue import Overdue
from services.session.store.overdue import OverdueStore
from services.session.store.stopping import StopStore
from services.session.turns import EndReason, TurnState
from tests.databases import execute
from tests.session.desks import Desk
from tests.session.stops import PATIENCE, all_commands, stop

MARGIN = 30.0
INTERVAL = 5.0


def overdue(desk: Desk, stopping: list[bool]) -> Overdue:
    return Overdue(
        OverdueStore(desk.database),
        StopStore(desk.writer, desk.clock, patience=PATIENCE),
        desk.clock,
        margin=MARGIN,
        interval=INTERVAL,
        stopping=lambda: stopping.append(True),
    )


async def exceed(database_url: str, column: str, seconds: float) -> None:
    """Let a bound of the turn have passed so long ago."""
    columns = {"duration": "duration_deadline", "phase": "phase_deadline"}
    query = f"UPDATE session.turns SET {columns[column]} = clock_timestamp() - $1::interval"
    await execute(database_url, query, timedelta(seconds=seconds))


@pytest.mark.parametrize(
    ("bound", "reason"), [("duration", EndReason.MAX_DURATION), ("phase", EndReason.PHASE_DEADLINE)]
)
async def test_a_turn_that_exceeds_a_bound_is_stopped_and_has_failed(
    desk: Desk, database_url: str, bound: str, reason: EndReason
) -> None:
    holder = await desk.begun()
    stopping: list[bool] = []
    await exceed(database_url, bound, MARGIN - 2.0)
    assert 0 < await overdue(desk, stopping).step() <= 2.0
    assert not await all_commands(desk)
    await exceed(database_url, bound, MARGIN)
    for _ in range(2):
        await overdue(desk, stopping).step()
    assert stopping == [True]
    (command,) = await all_commands(desk)
    assert (command.turn_id, command.outcome) == ("t1", None)
    turn = await desk.read_turn()
    assert turn.stop_deadline == command.deadline
    await holder.finish(
        state=turn_pb2.TURN_STATE_STOPPED,
        end_reason=turn_pb2.END_REASON_USER_STOP,
        stop_method=turn_pb2.STOP_METHOD_KILLED,
        runtime_after=turn_pb2.RUNTIME_AFTER_ENDED,
    )
    turn = await desk.read_turn()
    assert (turn.state, turn.end_reason, turn.stop_method) == (TurnState.FAILED, reason, None)
    assert turn_pb2.TurnError.FromString(turn.error or b"").code == reason
    assert turn.runtime_after == "ENDED"
    (command,) = await all_commands(desk)
    assert command.outcome is CommandOutcome.FAILED


async def test_a_turn_that_is_being_stopped_is_not_stopped_again(desk: Desk, database_url: str) -> None:
    await desk.begun()
    await stop(desk, "t1")
    await exceed(database_url, "duration", 3600.0)
    assert await overdue(desk, []).step() == INTERVAL
    (command,) = await all_commands(desk)
    assert command.turn_id == "t1"


async def test_a_stop_of_a_user_finds_the_services_own(desk: Desk, database_url: str) -> None:
    await desk.begun()
    await exceed(database_url, "duration", 3600.0)
    await overdue(desk, []).step()
    (own,) = await all_commands(desk)
    assert (await stop(desk, "t1")).command_id == own.command_id


async def test_a_turn_that_waits_for_a_user_may_wait(desk: Desk, database_url: str) -> None:
    """It is prompted, which has no deadline; how long it may last is another bound."""
    holder = await desk.begun()
    await exceed(database_url, "phase", 3600.0)
    await holder.report(phase=turn_pb2.TURN_PHASE_PROMPTED, prompt_sent=True)
    await holder.ask(1)
    assert await overdue(desk, []).step() == INTERVAL
    assert not await all_commands(desk)


async def test_how_long_a_turn_may_last_counts_from_its_begin(desk: Desk, database_url: str) -> None:
    await desk.begun()
    async with desk.database.connection() as connection:
        lasts = await connection.fetchval("SELECT duration_deadline - begin_time FROM session.turns")
    assert abs(lasts - timedelta(seconds=21600)) < timedelta(seconds=1)


async def test_what_has_ended_or_is_not_begun_is_not_stopped(desk: Desk, database_url: str) -> None:
    holder = await desk.begun()
    await holder.finish()
    await exceed(database_url, "duration", 3600.0)
    await desk.turn("t2")
    await exceed(database_url, "phase", 3600.0)
    assert await overdue(desk, []).step() == INTERVAL
    assert not await all_commands(desk)
