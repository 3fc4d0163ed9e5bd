"""Decisions about one question that meet: one outcome, one record, whichever comes first."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator

import pytest

from services.common.clock import SystemClock
from services.common.database import Database
from services.common.errors import MoorageError
from services.common.settings import DatabaseSettings
from services.session.interactions import Interaction, InteractionState
from services.session.turns import TurnState
from tests.races.meeting import meet, reason
from tests.session.desks import Desk, Holder, system_desk
from tests.session.questions import answer, check_told, closings, read, undelivered
from tests.session.stops import stop

ROUNDS = 40

ANSWERED, CANCELLED, EXPIRED = (
    InteractionState.ANSWERED,
    InteractionState.CANCELLED,
    InteractionState.EXPIRED,
)


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


async def waiting(desk: Desk, number: int) -> Holder:
    """The holder of a new turn that waits for the answer to q1."""
    holder = await desk.begun(f"s{number}")
    await holder.ask(1)
    return holder


async def decided(desk: Desk, session_id: str) -> Interaction:
    """What became of q1, when everything says the same and says it once."""
    await check_told(desk, session_id)
    (closed,) = await closings(desk, session_id)
    stored = await read(desk, "q1", session_id)
    assert closed.interaction_id == "q1"
    assert closed.outcome == stored.state.outcome
    return stored


async def test_answers_at_once_and_one_decides(desk: Desk, other: Desk) -> None:
    for number in range(ROUNDS):
        holder = await waiting(desk, number)
        session_id = holder.key.session_id
        calls = [
            answer(place, "q1", option_id, session_id, request_id=f"{option_id} {place is desk}")
            for option_id in ("yes", "no")
            for place in (desk, other)
        ]
        outcomes = await asyncio.gather(*calls, return_exceptions=True)
        (won,) = [outcome for outcome in outcomes if isinstance(outcome, Interaction)]
        lost = [outcome for outcome in outcomes if isinstance(outcome, MoorageError)]
        assert [error.metadata["option_id"] for error in lost] == [won.option_id] * 3
        assert await decided(desk, session_id) == won
        assert (await desk.read_turn(session_id=session_id)).state is TurnState.RUNNING


async def test_one_call_made_twice_at_once_decides_once(desk: Desk, other: Desk) -> None:
    for number in range(ROUNDS):
        holder = await waiting(desk, number)
        session_id = holder.key.session_id
        first, second = await asyncio.gather(
            answer(desk, "q1", "yes", session_id, request_id="r1"),
            answer(other, "q1", "yes", session_id, request_id="r1"),
        )
        assert first == second == await decided(desk, session_id)


async def test_an_answer_and_the_end_of_its_time_meet(desk: Desk, other: Desk) -> None:
    outcomes: Counter[InteractionState] = Counter()
    for number in range(ROUNDS):
        holder = await waiting(desk, number)
        session_id = holder.key.session_id
        await let_expire_in(desk, session_id, number % 8)
        refused, _ = await meet(reason(answer(desk, "q1", "yes", session_id)), expire(other, holder), number)
        stored = await decided(desk, session_id)
        outcomes[stored.state] += 1
        assert (stored.state, refused) in [(ANSWERED, ""), (EXPIRED, "INTERACTION_NOT_PENDING")]
        assert stored.settle_time is not None
        assert (stored.settle_time >= stored.expire_time) or stored.state is ANSWERED
    assert set(outcomes) == {ANSWERED, EXPIRED}


async def let_expire_in(desk: Desk, session_id: str, milliseconds: int) -> None:
    async with desk.database.connection() as connection:
        await connection.execute(
            """
            UPDATE session.interactions SET expire_time = clock_timestamp() + $2 * interval '1 ms'
            WHERE session_id = $1
            """,
            session_id,
            milliseconds,
        )


async def expire(desk: Desk, holder: Holder) -> None:
    """Look for what is overdue until nothing waits any more."""
    while (await read(desk, "q1", holder.key.session_id)).state is InteractionState.PENDING:
        await desk.interactions.expire(holder.key)


async def test_an_answer_and_a_stop_meet(desk: Desk, other: Desk) -> None:
    outcomes: Counter[InteractionState] = Counter()
    for number in range(ROUNDS):
        holder = await waiting(desk, number)
        session_id = holder.key.session_id
        refused, command = await meet(
            reason(answer(desk, "q1", "yes", session_id)), stop(other, "t1", session_id), number
        )
        stored = await decided(desk, session_id)
        outcomes[stored.state] += 1
        assert (stored.state, stored.settled_by, refused) in [
            (ANSWERED, "client", ""),
            (CANCELLED, command.command_id, "INTERACTION_NOT_PENDING"),
        ]
        turn = await desk.read_turn(session_id=session_id)
        assert (turn.state, turn.stopping) == (TurnState.RUNNING, True)
        # Whichever it was: a runner that is told to stop is told of no answer after it.
        assert await undelivered(desk) == []
    assert set(outcomes) == {ANSWERED, CANCELLED}


async def test_an_answer_and_the_end_of_the_turn_meet(desk: Desk, other: Desk) -> None:
    outcomes: Counter[InteractionState] = Counter()
    for number in range(ROUNDS):
        holder = await waiting(desk, number)
        session_id = holder.key.session_id
        watchdog = desk.holder(session_id, token=2, role="service", name="session/1")
        ending = (
            holder.finish(last_turn_seq=1)
            if number % 4 < 2
            else other.journal.show(watchdog.key, watchdog.grant)
        )
        refused, _ = await meet(reason(answer(desk, "q1", "yes", session_id)), ending, number)
        stored = await decided(desk, session_id)
        outcomes[stored.state] += 1
        by = "AGENT_ENDED" if number % 4 < 2 else "LEASE_LOST"
        assert (stored.state, stored.settled_by, refused) in [
            (ANSWERED, "client", ""),
            (CANCELLED, by, "INTERACTION_NOT_PENDING"),
        ]
        assert (await desk.transcript(session_id))[-1].kind == "turn_ended"
        assert await undelivered(desk) == []
    assert set(outcomes) == {ANSWERED, CANCELLED}


async def test_a_question_and_a_stop_meet(desk: Desk, other: Desk) -> None:
    stored_first = 0
    for number in range(ROUNDS):
        session_id = f"s{number}"
        holder = await desk.begun(session_id)
        asked, _ = await meet(holder.ask(1), stop(other, "t1", session_id), number)
        stored_first += bool(asked.seq)
        turn = await desk.read_turn(session_id=session_id)
        assert (turn.state, turn.stopping, turn.last_turn_seq) == (
            TurnState.RUNNING,
            True,
            bool(asked.seq),
        )
        assert len(await closings(desk, session_id)) == bool(asked.seq)
        await check_told(desk, session_id)
        assert await holder.append(turn.last_turn_seq + 1) == [asked.seq + 2 if asked.seq else 3]
    assert 0 < stored_first < ROUNDS


async def test_many_questions_are_asked_answered_and_cut_short_at_once(desk: Desk, other: Desk) -> None:
    """Ten sessions, each with four questions answered at both replicas while the turn is ended."""
    holders = [await desk.begun(f"s{number}") for number in range(10)]

    async def play(holder: Holder) -> None:
        session_id = holder.key.session_id
        for turn_seq in range(1, 5):
            await holder.ask(turn_seq, f"q{turn_seq}")
        calls = [
            reason(answer(place, f"q{turn_seq}", "no", session_id))
            for turn_seq in range(1, 5)
            for place in (desk, other)
        ]
        await asyncio.gather(*calls, reason(holder.finish(last_turn_seq=4)))

    await asyncio.gather(*map(play, holders))
    for holder in holders:
        session_id = holder.key.session_id
        assert (await desk.read_turn(session_id=session_id)).state is TurnState.COMPLETED
        assert len(await closings(desk, session_id)) == 4
        await check_told(desk, session_id)
    assert await undelivered(desk) == []
