"""Holders, watchdog and replicas at once on one session: one terminal outcome, no gap, nothing doubled."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace

import grpc
import pytest
from moorage.common.v1 import turn_pb2
from moorage.session.v1 import journal_pb2
from moorage.session.v1.journal_pb2_grpc import JournalServiceStub

from services.cli.postgres.embedded import EmbeddedPostgres
from services.common.clock import SystemClock
from services.common.database import Database
from services.common.errors import MoorageError
from services.common.migrations import migrate
from services.common.settings import DatabaseSettings
from services.session.turns import EndReason, TurnState
from tests.servers import own_server
from tests.session.desks import Desk, Holder, message, system_desk

TURNS = 40


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


async def reason(call: object) -> str:
    """Empty, or why the call was refused."""
    try:
        await call  # type: ignore[misc]
    except MoorageError as error:
        return error.reason_name
    return ""


def elsewhere(holder: Holder, other: Desk) -> Holder:
    """The same holder, at the other replica."""
    return replace(holder, desk=other)


async def check_ended(desk: Desk, session_id: str) -> TurnState:
    """One end, told by one record, the last one, and one number after the other."""
    turn = await desk.read_turn(session_id=session_id)
    records = await desk.transcript(session_id)
    kinds = Counter(record.kind for record in records)
    assert kinds["turn_ended"] == 1
    assert kinds["error"] == (turn.state is TurnState.LOST)
    assert (records[-1].kind, records[-1].seq) == ("turn_ended", turn.last_seq)
    own = [record.turn_seq for record in records if record.turn_seq]
    assert own == list(range(1, turn.last_turn_seq + 1))
    return turn.state


async def test_many_begin_at_once_and_one_attempt_wins(desk: Desk, other: Desk) -> None:
    for number in range(TURNS):
        session_id = f"s{number}"
        await desk.session(session_id)
        await desk.turn("t1", session_id)
        holders = [
            desk.holder(session_id, attempt_id=f"a{attempt}", desk=place)
            for attempt in range(6)
            for place in (desk, other)
        ]
        outcomes = await asyncio.gather(*(reason(holder.begin()) for holder in holders))
        turn = await desk.read_turn(session_id=session_id)
        won = {holder.attempt_id for holder, outcome in zip(holders, outcomes, strict=True) if not outcome}
        assert won == {turn.attempt_id}
        assert Counter(outcomes) == {"": 2, "TURN_ALREADY_BEGUN": 10}
        assert len(await desk.transcript(session_id)) == 2


async def test_tokens_race_to_begin_and_the_highest_decides(desk: Desk, other: Desk) -> None:
    for number in range(TURNS):
        session_id = f"s{number}"
        await desk.session(session_id)
        await desk.turn("t1", session_id)
        holders = [
            desk.holder(session_id, token=token, attempt_id=f"a{token}", desk=place)
            for token, place in zip(range(1, 7), [desk, other] * 3, strict=True)
        ]
        outcomes = await asyncio.gather(*(reason(holder.begin()) for holder in holders))
        assert await desk.token(session_id) == 6
        assert set(outcomes) <= {"", "STALE_OWNER", "TURN_ENDED"}
        assert outcomes.count("") == 1
        turn = await desk.read_turn(session_id=session_id)
        assert turn.token == outcomes.index("") + 1
        if turn.token == 6:
            assert turn.state is TurnState.RUNNING
        else:
            assert turn.end_reason is EndReason.TAKEN_OVER
            assert await check_ended(desk, session_id) is TurnState.LOST


async def test_two_holders_append_and_finish_at_once(desk: Desk, other: Desk) -> None:
    states: Counter[TurnState] = Counter()
    for number in range(TURNS):
        session_id = f"s{number}"
        old = await desk.begun(session_id, token=1)
        new = elsewhere(desk.holder(session_id, token=2, attempt_id="a2", name="runner/2"), other)
        appended, finished, again, taken = await asyncio.gather(
            old.append(1, 2, 3),
            reason(old.finish(last_turn_seq=0)),
            reason(elsewhere(old, other).finish(last_turn_seq=0)),
            reason(new.begin()),
        )
        state = await check_ended(desk, session_id)
        states[state] += 1
        assert taken == "TURN_ENDED"
        stored = [outcome for outcome in appended if isinstance(outcome, int)]
        assert len(stored) == (await desk.read_turn(session_id=session_id)).last_turn_seq
        if state is TurnState.COMPLETED:
            assert "" in (finished, again)
        else:
            assert (finished, again) == ("STALE_OWNER", "STALE_OWNER")
    assert sum(states.values()) == TURNS


async def test_a_finish_and_the_watchdog_meet(desk: Desk, other: Desk) -> None:
    for number in range(TURNS):
        session_id = f"s{number}"
        holder = await desk.begun(session_id, token=1)
        watchdog = desk.holder(session_id, token=2, role="service", name="session/1")
        finished, _ = await asyncio.gather(
            reason(holder.finish()), other.journal.show(watchdog.key, watchdog.grant)
        )
        state = await check_ended(desk, session_id)
        assert (state, finished) in [(TurnState.COMPLETED, ""), (TurnState.LOST, "STALE_OWNER")]
        assert await desk.token(session_id) == 2
        # Whichever it was, told again it is the same.
        assert await reason(holder.finish()) == "STALE_OWNER"
        assert await check_ended(desk, session_id) is state


async def test_a_begin_and_the_end_of_the_window_meet(desk: Desk, other: Desk) -> None:
    for number in range(TURNS):
        session_id = f"s{number}"
        await desk.session(session_id)
        await desk.turn("t1", session_id)
        holder = desk.holder(session_id)
        begun, given_up = await asyncio.gather(
            reason(holder.begin()), other.journal.give_up(holder.key, "t1", 0.0)
        )
        turn = await desk.read_turn(session_id=session_id)
        assert (begun, given_up, turn.state) in [
            ("", False, TurnState.RUNNING),
            ("TURN_ENDED", True, TurnState.FAILED),
        ]
        await desk.transcript(session_id)


async def test_batches_of_replicas_with_the_same_sessions_do_not_block_each_other(
    desk: Desk, other: Desk
) -> None:
    holders = [await desk.begun(f"s{number}") for number in range(12)]
    choice = random.Random(5)

    async def send(place: Desk) -> None:
        call = JournalServiceStub(place.channel).AppendRecords()
        for number in range(1, 31):
            mixed = choice.sample(holders, len(holders))
            items = [holder.item(number, f"text {number}") for holder in mixed]
            await call.write(journal_pb2.AppendRecordsRequest(appends=items))
        await call.done_writing()
        async for response in call:
            assert {result.WhichOneof("result") for result in response.results} == {"seq"}

    await asyncio.gather(send(desk), send(other))
    for holder in holders:
        records = await desk.transcript(holder.key.session_id)
        assert [record.turn_seq for record in records if record.turn_seq] == list(range(1, 31))


@pytest.fixture
def own_postgres(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedPostgres]:
    """A server that this test may restart."""
    with own_server(tmp_path_factory) as server:
        yield server


async def test_a_restarted_database_loses_and_doubles_nothing(own_postgres: EmbeddedPostgres) -> None:
    await migrate(own_postgres.url, "session")
    settings = DatabaseSettings(database_url=own_postgres.url, database_acquire_timeout=2.0)
    async with Database(settings) as database, system_desk(database).serving() as desk:
        holders = [await desk.begun(f"s{number}", lasts=600.0) for number in range(5)]
        sending = asyncio.gather(*(send_until_stored(holder, 300) for holder in holders))
        for _ in range(3):
            await until_some_more(desk, sending)
            own_postgres.restart()
        attempts = await sending
        assert max(attempts) > 1, "no stream was cut: the restart came too late"
        for holder in holders:
            await finish_at_last(holder, 300)
            records = [record for record in await desk.transcript(holder.key.session_id) if record.turn_seq]
            assert [record.body for record in records] == [
                message(f"text {number}").SerializeToString() for number in range(1, 301)
            ]


async def until_some_more(desk: Desk, sending: asyncio.Future[list[int]]) -> None:
    """Return when records were stored since, or all are."""
    before = len(desk.changed)
    while len(desk.changed) < before + 5 and not sending.done():
        await asyncio.sleep(0.005)


async def send_until_stored(holder: Holder, count: int) -> int:
    """Append records as a runner does, again from the first unacknowledged one after a cut; how many streams."""
    acknowledged, streams = 0, 0
    while acknowledged < count:
        streams += 1
        with cut_allowed():
            call = holder.stub.AppendRecords()
            for number in range(acknowledged + 1, count + 1):
                items = [holder.item(number, f"text {number}")]
                await call.write(journal_pb2.AppendRecordsRequest(appends=items))
                response = await call.read()
                assert isinstance(response, journal_pb2.AppendRecordsResponse)
                assert [result.WhichOneof("result") for result in response.results] == ["seq"]
                acknowledged = number
            await call.done_writing()
    return streams


@contextlib.contextmanager
def cut_allowed() -> Iterator[None]:
    """A stream may be cut, but only as one that is worth another try."""
    try:
        yield
    except grpc.aio.AioRpcError as error:
        assert error.code() is grpc.StatusCode.UNAVAILABLE, error  # noqa: PT017


async def finish_at_last(holder: Holder, last_turn_seq: int) -> None:
    """Finish as a runner does: until it is acknowledged."""
    while outcome := await reason(holder.finish(last_turn_seq=last_turn_seq)):
        assert outcome == "DEPENDENCY_UNAVAILABLE"
    assert (await holder.finish()).turn.state == turn_pb2.TURN_STATE_COMPLETED
