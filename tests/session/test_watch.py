"""Watching sessions and turns (R5): everything once, in order, from any cursor, on any replica."""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest

from services.common.clock import ManualClock
from services.common.database import Database
from services.common.errors import DependencyUnavailable, ShuttingDown
from services.common.settings import DatabaseSettings
from services.session.records import CursorOutOfRange, Heartbeat, Record, RecordPage
from services.session.sessions import SessionNotFound
from services.session.store.records import RecordStore
from services.session.turns import Turn, TurnNotFound, TurnState
from services.session.watch.watching import Watching
from tests.conditions import eventually
from tests.databases import execute, fetch_value
from tests.session.desks import Desk, Holder
from tests.session.watches import Watcher, running, take


@pytest.fixture
async def watching(desk: Desk) -> AsyncIterator[Watching]:
    """The watches of the replica whose journal is written."""
    async with running(desk.database) as watching:
        desk.listeners.append(watching.changed)
        yield watching


@pytest.fixture
async def other_database(database_settings: DatabaseSettings) -> AsyncIterator[Database]:
    async with Database(database_settings, name="other") as opened:
        yield opened


async def test_a_watch_replays_and_then_follows(desk: Desk, watching: Watching) -> None:
    holder = await desk.begun()
    await holder.append(1, 2)
    async with Watcher(watching.watch_session("default", "s1", 1)) as watcher:
        await eventually(lambda: watcher.seqs == [2, 3, 4])
        await holder.append(3)
        await eventually(lambda: watcher.seqs == [2, 3, 4, 5])
        await holder.finish(last_turn_seq=3)
        await eventually(lambda: watcher.seqs == [2, 3, 4, 5, 6])
    assert watcher.seen == (await desk.transcript())[1:]


async def test_a_watch_begins_only_where_there_is_something(desk: Desk, watching: Watching) -> None:
    await desk.begun()
    with pytest.raises(SessionNotFound):
        await anext(watching.watch_session("default", "unknown", 0))
    with pytest.raises(SessionNotFound):
        await anext(watching.watch_session("other", "s1", 0))
    with pytest.raises(TurnNotFound):
        await anext(watching.watch_turn("default", "s1", "unknown", 0))
    for events in (
        watching.watch_session("default", "s1", 3),
        watching.watch_turn("default", "s1", "t1", 3),
    ):
        with pytest.raises(CursorOutOfRange) as refusal:
            await anext(events)
        assert refusal.value.metadata == {"session_id": "s1", "after_seq": "3", "head_seq": "2"}


async def test_a_watch_cut_at_random_sees_what_an_uncut_one_sees(desk: Desk, watching: Watching) -> None:
    choice = random.Random(11)
    holder = await desk.begun()
    async with Watcher(watching.watch_session("default", "s1", 0)) as uncut:
        writing = asyncio.create_task(write(holder, 400))
        seen: list[Record] = []
        for _ in range(40):
            length = choice.randint(1, 10)
            after_seq = seen[-1].seq if seen else 0
            events = watching.watch_session("default", "s1", after_seq)
            seen += await take(events, lambda part, length=length: len(part) == length)  # type: ignore[misc]
        await writing
        rest = watching.watch_session("default", "s1", seen[-1].seq)
        seen += await take(rest, lambda part: part[-1].kind == "turn_ended")
        await eventually(lambda: len(uncut.seen) == 403)
    assert seen == uncut.seen == await desk.transcript()


async def write(holder: Holder, count: int) -> None:
    for number in range(1, count + 1, 4):
        await holder.append(*range(number, number + 4))
    await holder.finish(last_turn_seq=count)


async def test_what_another_replica_writes_is_seen_by_its_hint(
    desk: Desk, watching: Watching, other_database: Database
) -> None:
    holder = await desk.begun()
    async with (
        running(other_database) as elsewhere,
        Watcher(elsewhere.watch_session("default", "s1", 0)) as watcher,
    ):
        await eventually(lambda: listening(other_database))
        await holder.append(1)
        await eventually(lambda: watcher.seqs == [1, 2, 3])


async def test_a_watch_of_a_deleted_session_ends_also_where_no_hint_arrives(desk: Desk) -> None:
    await desk.begun()
    async with running(desk.database, poll=0.05) as watching:
        watcher = Watcher(watching.watch_session("default", "s1", 0))
        await eventually(lambda: watcher.seqs == [1, 2])
        async with desk.database.connection() as connection:
            await connection.execute(
                "UPDATE session.sessions SET state = 'DELETED', operation = 'DELETE', operation_deadline = 'now'"
            )
        with pytest.raises(SessionNotFound):
            await watcher.task


async def test_hints_for_too_many_sessions_name_none_and_wake_all(
    desk: Desk, watching: Watching, other_database: Database
) -> None:
    holder = await desk.begun()
    async with (
        running(other_database) as elsewhere,
        Watcher(elsewhere.watch_session("default", "s1", 0)) as watcher,
    ):
        await eventually(lambda: listening(other_database))
        await holder.append(1)
        for number in range(500):
            watching.changed("default", f"{number:0>120}")
        await eventually(lambda: watcher.seqs == [1, 2, 3])


async def test_a_hint_that_cannot_be_read_makes_a_replica_look(
    desk: Desk, other_database: Database, database_url: str
) -> None:
    holder = await desk.begun()
    async with (
        running(other_database) as elsewhere,
        Watcher(elsewhere.watch_session("default", "s1", 0)) as watcher,
    ):
        await eventually(lambda: listening(other_database))
        for number, hint in enumerate(("{", "7", '["x", ["y"]]', '{"new": []}'), 1):
            await holder.append(number)
            await execute(database_url, "SELECT pg_notify('moorage_session_records', $1)", hint)
            await eventually(lambda number=number: watcher.seqs[-1:] == [number + 2])  # type: ignore[misc]


async def test_without_hints_a_look_finds_what_is_new(desk: Desk, other_database: Database) -> None:
    holder = await desk.begun()
    async with (
        running(other_database, poll=0.1) as elsewhere,
        Watcher(elsewhere.watch_session("default", "s1", 0)) as watcher,
    ):
        for number in range(1, 4):
            await holder.append(number)
            await eventually(lambda number=number: watcher.seqs[-1:] == [number + 2])  # type: ignore[misc]


async def test_a_lost_hearing_connection_loses_no_record(
    desk: Desk, watching: Watching, other_database: Database, database_url: str
) -> None:
    holder = await desk.begun()
    async with (
        running(other_database) as elsewhere,
        Watcher(elsewhere.watch_session("default", "s1", 0)) as watcher,
    ):
        await eventually(lambda: listening(other_database))
        for number in range(1, 6):
            ended = await fetch_value(
                database_url,
                "SELECT count(pg_terminate_backend(pid, 5000)) FROM pg_stat_activity "
                "WHERE application_name LIKE 'other listen%' AND datname = current_database()",
            )
            assert ended == 1
            await holder.append(number)
            await eventually(lambda number=number: watcher.seqs[-1:] == [number + 2])  # type: ignore[misc]
            await eventually(lambda: listening(other_database))


async def listening(database: Database) -> bool:
    async with database.connection() as connection:
        found: bool = await connection.fetchval(
            """
            SELECT count(*) > 0 FROM pg_stat_activity
            WHERE application_name LIKE 'other listen%' AND datname = current_database()
              AND query LIKE 'LISTEN%'
            """
        )
    return found


async def test_silence_is_broken_by_heartbeats(desk: Desk) -> None:
    holder = await desk.begun()
    clock = ManualClock()
    async with running(desk.database, clock=clock, heartbeat=15.0) as watching:
        desk.listeners.append(watching.changed)
        async with Watcher(watching.watch_session("default", "s1", 0)) as watcher:
            await eventually(lambda: watcher.seqs == [1, 2])
            await clock.advance(14.9)
            await holder.append(1)
            await eventually(lambda: watcher.seqs == [1, 2, 3])
            await clock.advance(14.9)
            assert not heartbeats(watcher)
            await clock.advance(0.2)
            await eventually(lambda: len(heartbeats(watcher)) == 1)
            assert [heartbeat.head_seq for heartbeat in heartbeats(watcher)] == [3]
            await eventually(lambda: clock.sleepers >= 3)
            await clock.advance(15.0)
            await eventually(lambda: len(heartbeats(watcher)) == 2)


def heartbeats(watcher: Watcher) -> list[Heartbeat]:
    return [event for event in watcher.seen if isinstance(event, Heartbeat)]


async def test_at_shutdown_watches_end_with_the_last_seq(desk: Desk, watching: Watching) -> None:
    holder = await desk.begun()
    await holder.append(1)
    session = Watcher(watching.watch_session("default", "s1", 0))
    turn = Watcher(watching.watch_turn("default", "s1", "t1", 2))
    await eventually(lambda: session.seqs == [1, 2, 3] and turn.seqs == [3])
    await watching.drain()
    for watcher in (session, turn):
        with pytest.raises(ShuttingDown) as end:
            await watcher.task
        assert end.value.metadata == {"last_seq": "3"}
    with pytest.raises(ShuttingDown) as end:
        await take(watching.watch_session("default", "s1", 1), lambda _: False)
    assert end.value.metadata == {"last_seq": "3"}


async def test_a_drain_does_not_wait_for_a_client_that_does_not_read(desk: Desk, watching: Watching) -> None:
    await desk.begun()
    events = watching.watch_session("default", "s1", 0)
    await anext(events)
    async with asyncio.timeout(5.0):
        await watching.drain()
    await events.aclose()


async def test_a_slow_watcher_holds_up_nobody_and_misses_nothing(desk: Desk, watching: Watching) -> None:
    holder = await desk.begun()
    slow = watching.watch_session("default", "s1", 0)
    first = await anext(slow)
    async with Watcher(watching.watch_session("default", "s1", 0)) as quick:
        await write(holder, 800)
        await eventually(lambda: len(quick.seqs) == 803)
    rest = await take(slow, lambda part: part[-1].kind == "turn_ended")
    assert [first, *rest] == quick.seen


async def test_an_outage_while_a_watch_is_behind_skips_nothing(
    desk: Desk, watching: Watching, monkeypatch: pytest.MonkeyPatch
) -> None:
    holder = await desk.begun()
    await write(holder, 800)
    read, reads = RecordStore.page, itertools.count()

    async def cut(*args: Any, **options: Any) -> RecordPage:
        if next(reads) % 2:
            raise DependencyUnavailable(dependency="database", cause="the connection was lost")
        return await read(*args, **options)

    monkeypatch.setattr(RecordStore, "page", cut)
    events = watching.watch_session("default", "s1", 0)
    seen = await take(events, lambda part: part[-1].kind == "turn_ended")
    assert [record.seq for record in seen] == list(range(1, 804))


async def test_a_watched_turn_ends_with_itself(desk: Desk, watching: Watching) -> None:
    holder = await desk.begun()
    async with Watcher(watching.watch_turn("default", "s1", "t1", 0)) as watcher:
        await holder.append(1)
        await holder.finish(last_turn_seq=1)
        await watcher.task
    *records, turn = watcher.seen
    assert records == await desk.transcript()
    assert isinstance(turn, Turn)
    assert turn == await desk.read_turn()
    assert turn.state is TurnState.COMPLETED


async def test_a_watched_turn_shows_no_record_of_another(desk: Desk, watching: Watching) -> None:
    holder = await desk.begun()
    await holder.finish()
    await desk.turn("t2")
    second = replace(holder, turn_id="t2")
    await second.begin()
    await second.append(1)
    async with Watcher(watching.watch_turn("default", "s1", "t2", 0)) as watcher:
        await second.finish(last_turn_seq=1)
        await watcher.task
    assert {event.turn_id for event in watcher.seen} == {"t2"}
    assert watcher.seqs == [4, 5, 6, 7]
    again = await take(watching.watch_turn("default", "s1", "t1", 1), lambda _: False)
    assert [type(event) for event in again] == [Record, Record, Turn]


async def test_attaching_to_an_ended_turn_gives_what_was_missed(desk: Desk, watching: Watching) -> None:
    holder = await desk.begun()
    await holder.append(1)
    await holder.finish(last_turn_seq=1)
    records = await desk.transcript()
    turn = await desk.read_turn()
    for after_seq in range(5):
        seen = await take(watching.watch_turn("default", "s1", "t1", after_seq), lambda _: False)
        assert seen == [*records[after_seq:], turn]
    with pytest.raises(CursorOutOfRange):
        await anext(watching.watch_turn("default", "s1", "t1", 5))


async def test_many_watchers_of_many_sessions_see_their_own(desk: Desk, watching: Watching) -> None:
    holders = [await desk.begun(f"s{number}") for number in range(10)]
    watchers = [
        Watcher(watching.watch_turn("default", holder.key.session_id, "t1", 0))
        for holder in holders
        for _ in range(5)
    ]
    await asyncio.gather(*(write(holder, 40) for holder in holders))
    await asyncio.gather(*(watcher.task for watcher in watchers))
    for watcher in watchers:
        assert watcher.seqs == list(range(1, 44))
        assert len({event.session_id for event in watcher.seen}) == 1
