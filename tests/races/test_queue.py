"""The queue and what it may meet, at two replicas (T2): never a lost wake-up, one slot, one ending."""

from __future__ import annotations

import asyncio
import os
import secrets
from collections import Counter
from collections.abc import AsyncIterator, Awaitable
from dataclasses import replace
from typing import TypeVar

import pytest
from moorage.common.v1 import turn_pb2

from services.common.clock import SystemClock
from services.common.database import Database
from services.common.settings import DatabaseSettings
from services.session.commands import CommandState
from services.session.turns import TurnState
from tests.races.meeting import reason
from tests.races.offsets import Offsets, Tally, meet
from tests.session.desks import Desk, Holder, system_desk
from tests.session.queues import close, enqueue, expire, interrupt, queue, run_out
from tests.session.stops import all_commands, stop

T = TypeVar("T")
U = TypeVar("U")

ROUNDS = int(os.environ.get("RACES", "40"))
# Longer than a round: the arrival of a call is known to a round trip to the database only.
HELD_UP = 5.0
SEED = int(os.environ.get("SEED", "0")) or secrets.randbelow(10**6)


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


class Contest:
    """Rounds in which two meet at random offsets; told in the end is how often each side won."""

    def __init__(self, name: str, first: str, second: str) -> None:
        self.first = first
        self.tally = Tally(name, (first, second), SEED)
        self.offsets = Offsets(SEED, width=0.01)

    async def meet(self, first: Awaitable[T], second: Awaitable[U]) -> tuple[T, U]:
        """Let both loose."""
        return await meet(first, second, self.offsets.draw())

    def won(self, side: str) -> None:
        """How the round ended."""
        self.tally.wins[side] += 1
        self.offsets.learn(first_won=side == self.first)

    def check(self) -> None:
        """Print it; fails when a side hardly ever won."""
        self.tally.check(ROUNDS)


async def state(desk: Desk, session_id: str, turn_id: str) -> TurnState:
    return (await desk.read_turn(turn_id, session_id)).state


async def stopped(holder: Holder) -> None:
    await holder.finish(
        state=turn_pb2.TURN_STATE_STOPPED,
        end_reason=turn_pb2.END_REASON_USER_STOP,
        stop_method=turn_pb2.STOP_METHOD_AGENT_CONFIRMED,
    )


async def admitted_long_ago(desk: Desk, session_id: str) -> None:
    """What a Stop that was held up may hit all the same."""
    async with desk.database.connection() as connection:
        await connection.execute(
            "UPDATE session.turns SET admit_time = admit_time - interval '1 min' WHERE session_id = $1",
            session_id,
        )


async def ends_once(desk: Desk, session_id: str) -> None:
    """One end record for each ended turn, nothing open about it, at most one turn in the slot."""
    records = await desk.transcript(session_id)
    page = await desk.turns.list_newest("default", session_id, 10**6, 100)
    for turn in page.items:
        kinds = Counter(record.kind for record in records if record.turn_id == turn.turn_id)
        assert kinds["turn_ended"] == turn.state.ended
        assert kinds["user_message"] == (turn.admit_time is not None)
    assert sum(turn.state.in_progress for turn in page.items) <= 1
    states = {turn.turn_id: turn.state for turn in page.items}
    for command in await all_commands(desk, session_id):
        if command.turn_id is not None and states[command.turn_id].ended:
            assert command.settled


async def test_enqueue_and_an_ending_meet(desk: Desk, other: Desk) -> None:
    """Whoever is first: after COMPLETED no turn waits at an idle session."""
    contest = Contest("ENQUEUE x ending", "ENQUEUE", "ending")
    for number in range(ROUNDS):
        session_id = f"s{number}"
        holder = replace(await desk.begun(session_id), desk=other)
        started, _ = await contest.meet(enqueue(desk, "t2", session_id), holder.finish())
        assert (await state(desk, session_id, "t2"), await queue(desk, session_id)) == ("ADMITTED", [])
        # The turn was promoted by the ending, or found the session idle.
        ended = (await desk.read_turn("t1", session_id)).end_time
        assert ended is not None
        contest.won("ENQUEUE" if started.create_time < ended else "ending")
        assert started.state in (TurnState.QUEUED, TurnState.ADMITTED)
        await ends_once(desk, session_id)
    contest.check()


async def test_two_enqueues_and_an_ending_meet(desk: Desk, other: Desk) -> None:
    offsets = Offsets(SEED, width=0.01)
    for number in range(ROUNDS // 2):
        session_id = f"s{number}"
        holder = replace(await desk.begun(session_id), desk=other)
        both = asyncio.gather(enqueue(desk, "t2", session_id), enqueue(other, "t3", session_id))
        await meet(both, holder.finish(), offsets.draw())
        states = {turn_id: await state(desk, session_id, turn_id) for turn_id in ("t2", "t3")}
        assert sorted(states.values()) == ["ADMITTED", "QUEUED"]
        await ends_once(desk, session_id)


async def test_interrupt_and_a_manual_stop_meet(desk: Desk, other: Desk) -> None:
    """Stopped after it was interrupted: the queue is held. Interrupted while stopping: it goes on."""
    contest = Contest("INTERRUPT x manual Stop, who is first", "INTERRUPT", "Stop")
    for number in range(ROUNDS):
        session_id = f"s{number}"
        holder = await desk.begun(session_id)
        await contest.meet(interrupt(other, "t2", session_id), stop(desk, "t1", session_id))
        [command] = await all_commands(desk, session_id)
        assert (command.turn_id, command.state) == ("t1", CommandState.PENDING)
        was_held = await queue(desk, session_id) == ["t2"]
        await stopped(holder)
        ended = await desk.read_turn("t1", session_id)
        assert (ended.state, ended.end_reason) == ("STOPPED", "INTERRUPTED" if was_held else "USER_STOP")
        assert await state(desk, session_id, "t2") == ("QUEUED" if was_held else "ADMITTED")
        contest.won("INTERRUPT" if was_held else "Stop")
        await ends_once(desk, session_id)
    contest.check()


async def test_interrupt_and_begin_meet(desk: Desk, other: Desk) -> None:
    contest = Contest("INTERRUPT x begin", "INTERRUPT", "begin")
    for number in range(ROUNDS):
        session_id = f"s{number}"
        await desk.session(session_id)
        await desk.turn("t1", session_id)
        holder = replace(desk.holder(session_id), desk=other)
        started, begun = await contest.meet(interrupt(desk, "t2", session_id), reason(holder.begin()))
        if begun:
            assert (begun, started.state) == ("TURN_ENDED", TurnState.ADMITTED)
        else:
            assert (started.state, (await desk.read_turn("t1", session_id)).stopping) == ("QUEUED", True)
            await stopped(holder)
        ended = await desk.read_turn("t1", session_id)
        assert (ended.state, ended.end_reason) == ("STOPPED", "INTERRUPTED")
        assert await state(desk, session_id, "t2") is TurnState.ADMITTED
        contest.won("INTERRUPT" if begun else "begin")
        await ends_once(desk, session_id)
    contest.check()


async def test_a_stop_and_a_finish_meet_with_a_turn_in_the_queue(desk: Desk, other: Desk) -> None:
    """The unnamed Stop arrived while the first turn was in progress: it never hits the second."""
    contest = Contest("Stop x finish with a turn in the queue", "Stop", "finish")
    for number in range(ROUNDS):
        session_id = f"s{number}"
        holder = replace(await desk.begun(session_id), desk=other)
        await admitted_long_ago(desk, session_id)
        await enqueue(desk, "t2", session_id)
        named = "t1" if number % 4 < 2 else ""
        ordered, _ = await contest.meet(reason(stop(desk, named, session_id, age=HELD_UP)), holder.finish())
        following = await desk.read_turn("t2", session_id)
        assert (following.state, following.stopping) == (TurnState.ADMITTED, False)
        commands = await all_commands(desk, session_id)
        if ordered:
            assert (ordered, named, commands) == ("TURN_MISMATCH", "t1", [])
            contest.won("finish")
        else:
            [command] = commands
            assert command.turn_id in ("t1", None)
            assert command.outcome in ("NOT_RUNNING", "SUPERSEDED_BY_NEWER_TURN")
            contest.won("finish" if command.turn_id is None else "Stop")
        await ends_once(desk, session_id)
    contest.check()


async def test_a_named_stop_of_a_queued_turn_and_its_promotion_meet(desk: Desk, other: Desk) -> None:
    contest = Contest("Stop of a queued turn x its promotion", "Stop", "promotion")
    for number in range(ROUNDS):
        session_id = f"s{number}"
        holder = replace(await desk.begun(session_id), desk=other)
        await enqueue(desk, "t2", session_id)
        command, _ = await contest.meet(stop(desk, "t2", session_id), holder.finish())
        assert (command.turn_id, command.outcome, command.stop_method) == ("t2", "STOPPED", "NOT_BEGUN")
        assert await state(desk, session_id, "t1") is TurnState.COMPLETED
        withdrawn = await desk.read_turn("t2", session_id)
        assert withdrawn.state is TurnState.STOPPED
        contest.won("Stop" if withdrawn.admit_time is None else "promotion")
        await ends_once(desk, session_id)
    contest.check()


async def test_a_refused_start_and_a_stop_of_the_admitted_turn_meet(desk: Desk, other: Desk) -> None:
    contest = Contest("StartTurn x Stop of the admitted turn", "StartTurn", "Stop")
    for number in range(ROUNDS):
        session_id = f"s{number}"
        await desk.session(session_id)
        await desk.turn("t1", session_id)
        refused, command = await contest.meet(
            reason(other.turn("t2", session_id)), stop(desk, "t1", session_id)
        )
        assert (command.turn_id, command.outcome) == ("t1", "STOPPED")
        assert refused in ("", "TURN_IN_PROGRESS")
        records = [record.turn_id for record in await desk.transcript(session_id)]
        assert records == (["t1", "t1"] if refused else ["t1", "t1", "t2"])
        contest.won("StartTurn" if refused else "Stop")
        await ends_once(desk, session_id)
    contest.check()


async def test_expiry_and_promotion_meet(desk: Desk, other: Desk) -> None:
    """Run out before either of them: whoever is first ends it, and it is never admitted."""
    contest = Contest("expiry x promotion", "expiry", "promotion")
    for number in range(ROUNDS):
        session_id = f"s{number}"
        holder = replace(await desk.begun(session_id), desk=other)
        await enqueue(desk, "t2", session_id)
        await enqueue(desk, "t3", session_id)
        await run_out(desk, "t2", session_id)
        await contest.meet(expire(desk, session_id), holder.finish())
        expired = await desk.read_turn("t2", session_id)
        assert (expired.end_reason, expired.admit_time) == ("QUEUE_EXPIRED", None)
        assert await state(desk, session_id, "t3") is TurnState.ADMITTED
        kinds = [f"{record.turn_id} {record.kind}" for record in await desk.transcript(session_id)]
        first = kinds.index("t2 turn_ended") < kinds.index("t1 turn_ended")
        contest.won("expiry" if first else "promotion")
        await ends_once(desk, session_id)
    contest.check()


async def test_closing_and_an_ending_meet(desk: Desk, other: Desk) -> None:
    """Promoted and then stopped by the closing, or ended in the queue; never left waiting."""
    contest = Contest("closing x ending", "closing", "ending")
    for number in range(ROUNDS):
        session_id = f"s{number}"
        holder = replace(await desk.begun(session_id), desk=other)
        await enqueue(desk, "t2", session_id)
        await contest.meet(close(desk, session_id), holder.finish())
        following = await desk.read_turn("t2", session_id)
        if following.admit_time is None:
            assert (following.state, following.end_reason) == ("STOPPED", "CLOSED")
        else:
            assert following.state is TurnState.ADMITTED
        contest.won("closing" if following.admit_time is None else "ending")
        await ends_once(desk, session_id)
    contest.check()
