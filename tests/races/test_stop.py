"""Stops that meet everything else at the same moment: one outcome each, and never another turn's."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from typing import TypeVar

import pytest
from moorage.common.v1 import turn_pb2

from services.common.clock import SystemClock
from services.common.database import Database
from services.common.settings import DatabaseSettings
from services.session.commands import Command, CommandState
from services.session.turns import TurnState
from tests.races.meeting import meet, reason
from tests.session.desks import Desk, Holder, system_desk
from tests.session.stops import all_commands, read, stop

T = TypeVar("T")
ROUNDS = 40


@pytest.fixture
async def desk(database: Database) -> AsyncIterator[Desk]:
    """A replica's journal."""
    async with system_desk(database).serving() as desk:
        yield desk


@pytest.fixture
async def other(desk: Desk, database_settings: DatabaseSettings) -> AsyncIterator[Desk]:
    """Another replica with the same keys."""
    async with (
        Database(database_settings, name="other") as opened,
        Desk(opened, SystemClock(), keys=desk.keys).serving() as other,
    ):
        yield other


async def stopped(holder: Holder) -> None:
    await holder.finish(
        state=turn_pb2.TURN_STATE_STOPPED,
        end_reason=turn_pb2.END_REASON_USER_STOP,
        stop_method=turn_pb2.STOP_METHOD_AGENT_CONFIRMED,
        runtime_after=turn_pb2.RUNTIME_AFTER_WARM,
    )


async def completed(holder: Holder) -> None:
    await holder.finish()


async def lost(holder: Holder) -> None:
    watchdog = replace(holder, token=2, role="service")
    await watchdog.desk.journal.show(watchdog.key, watchdog.grant)


async def check_ended(desk: Desk, session_id: str, turn_id: str = "t1") -> TurnState:
    """One end, told by one record; nothing open about the turn."""
    turn = await desk.read_turn(turn_id, session_id)
    kinds = Counter(record.kind for record in await desk.transcript(session_id) if record.turn_id == turn_id)
    assert kinds["turn_ended"] == 1
    assert not turn.stopping
    assert all(each.settled for each in await all_commands(desk, session_id) if each.turn_id == turn_id)
    return turn.state


async def test_a_stop_and_a_begin_meet(desk: Desk, other: Desk) -> None:
    states: Counter[TurnState] = Counter()
    for number in range(ROUNDS):
        session_id = f"s{number}"
        await desk.session(session_id)
        await desk.turn("t1", session_id)
        holder = replace(desk.holder(session_id), desk=other)
        command, begun = await meet(stop(desk, "t1", session_id), reason(holder.begin()), number)
        turn = await desk.read_turn(session_id=session_id)
        states[turn.state] += 1
        if begun:
            assert begun == "TURN_ENDED"
            assert (turn.state, turn.stop_method, turn.attempt_id) == (TurnState.STOPPED, "NOT_BEGUN", None)
            assert (command.state, command.stop_method) == (CommandState.APPLIED, "NOT_BEGUN")
            await check_ended(desk, session_id)
        else:
            assert (turn.state, turn.stopping) == (TurnState.RUNNING, True)
            assert command.state is CommandState.PENDING
            await stopped(holder)
            assert (await read(desk, command.command_id, session_id)).outcome == "STOPPED"
    assert set(states) == {TurnState.STOPPED, TurnState.RUNNING}, "only one order was seen"


@pytest.mark.parametrize(
    ("end", "settled"), [(completed, "NOT_RUNNING"), (stopped, "STOPPED"), (lost, "LOST")]
)
async def test_a_stop_and_an_end_meet(
    desk: Desk, other: Desk, end: Callable[[Holder], Awaitable[None]], settled: str
) -> None:
    outcomes: Counter[tuple[bool, str]] = Counter()
    for number in range(ROUNDS):
        session_id = f"s{number}"
        ending = end(replace(await desk.begun(session_id), desk=other))
        command, ended = await meet(stop(desk, "t1", session_id), reason(ending), number)
        assert ended == ""
        await check_ended(desk, session_id)
        stored = await read(desk, command.command_id, session_id)
        was_in_time = stored.deadline is not None
        assert stored.outcome == (settled if was_in_time else "NOT_RUNNING")
        outcomes[was_in_time, str(stored.outcome)] += 1
    assert len({was_in_time for was_in_time, _ in outcomes}) == 2, f"only one order was seen: {outcomes}"


async def test_many_stops_of_one_turn_at_once_share_one_command(desk: Desk, other: Desk) -> None:
    for number in range(ROUNDS // 4):
        session_id = f"s{number}"
        holder = await desk.begun(session_id)
        asked = [
            stop(place, turn_id, session_id, request_id=request_id)
            for place in (desk, other)
            for turn_id in ("t1", "")
            for request_id in ("", f"r_{turn_id}")
        ]
        commands: list[Command] = await asyncio.gather(*asked)
        assert len({command.command_id for command in commands}) == 1
        assert len(await all_commands(desk, session_id)) == 1
        await holder.finish()
        again = await stop(other, "t1", session_id, request_id="r_t1")
        assert again.command_id == commands[0].command_id
        assert again.outcome == "NOT_RUNNING"


async def test_a_stop_and_the_start_of_its_turn_meet(desk: Desk, other: Desk) -> None:
    seen: Counter[str] = Counter()
    for number in range(ROUNDS):
        session_id = f"s{number}"
        await desk.session(session_id)
        command, started = await meet(
            stop(desk, "t1", session_id), reason(other.turn("t1", session_id)), number
        )
        seen[started] += 1
        if started:
            assert (started, command.outcome) == ("TURN_WITHDRAWN", "WITHDRAWN")
            assert await desk.transcript(session_id) == []
        else:
            assert (command.outcome, command.stop_method) == ("STOPPED", "NOT_BEGUN")
            assert await check_ended(desk, session_id) is TurnState.STOPPED
    assert set(seen) == {"", "TURN_WITHDRAWN"}, f"only one order was seen: {seen}"


async def test_a_stop_of_a_turn_never_hits_the_next_one(desk: Desk, other: Desk) -> None:
    seen: Counter[str] = Counter()
    for number in range(ROUNDS):
        session_id = f"s{number}"
        holder = replace(await desk.begun(session_id), desk=other)
        moved_on = asyncio.Event()
        order = stop(desk, "t1", session_id)
        # The next turn takes two transactions to come: by chance alone no Stop is late enough.
        late = number % 4 == 0
        gone, asked = await meet(
            next_turn(holder, session_id, moved_on), reason(after(moved_on, order) if late else order), number
        )
        seen[asked] += 1
        assert asked in ("", "TURN_MISMATCH")
        following = await desk.read_turn("t2", session_id)
        assert (gone, following.state, following.stopping) == ("", TurnState.RUNNING, False)
        assert await check_ended(desk, session_id) is TurnState.COMPLETED
        commands = await all_commands(desk, session_id)
        assert [(each.turn_id, each.outcome) for each in commands] == (
            [] if asked else [("t1", "NOT_RUNNING")]
        )
    assert len(seen) == 2, f"only one order was seen: {seen}"


async def after(event: asyncio.Event, work: Awaitable[T]) -> T:
    """Not before the event."""
    await event.wait()
    return await work


async def next_turn(holder: Holder, session_id: str, moved_on: asyncio.Event) -> str:
    """End the turn, start the next one and begin it."""
    await holder.finish()
    await holder.desk.turn("t2", session_id)
    moved_on.set()
    return await reason(replace(holder, turn_id="t2", attempt_id="a2").begin())


async def test_an_unnamed_stop_hits_no_turn_that_was_started_after_it(desk: Desk, other: Desk) -> None:
    """Its call arrived before the turn ended and the next one took the slot."""
    seen: Counter[str | None] = Counter()
    for number in range(ROUNDS):
        session_id = f"s{number}"
        holder = replace(await desk.begun(session_id), desk=other)
        arrived = desk.clock.boottime()
        gone, command = await asyncio.gather(
            next_turn(holder, session_id, asyncio.Event()), late_stop(desk, session_id, arrived, number)
        )
        following = await desk.read_turn("t2", session_id)
        assert (gone, following.stopping) == ("", False)
        assert command.turn_id in ("t1", None)
        seen[command.outcome] += 1
    assert seen["SUPERSEDED_BY_NEWER_TURN"] > 0, f"no turn came in between: {seen}"


async def late_stop(desk: Desk, session_id: str, arrived: float, number: int) -> Command:
    """An unnamed Stop that was held up in its process, every other time until the next turn runs."""
    if number % 2:
        while not await exists(desk, session_id, "t2"):
            await asyncio.sleep(0)
    return await stop(desk, "", session_id, age=desk.clock.boottime() - arrived)


async def exists(desk: Desk, session_id: str, turn_id: str) -> bool:
    return not await reason(desk.read_turn(turn_id, session_id))
