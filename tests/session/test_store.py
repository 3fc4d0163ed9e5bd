"""Admission, request ids and clean answers, at the store and on a real database."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import timedelta

import asyncpg
import pytest
from moorage.common.v1 import record_pb2
from moorage.session.v1 import session_pb2

from services.common.database import Database
from services.session.bindings import BindingUnresolved
from services.session.requests import RequestIdReused, RequestKey, key_of
from services.session.sessions import SessionAlreadyExists, SessionNotFound
from services.session.store.records import RecordStore
from services.session.store.requests import RequestStore
from services.session.store.sessions import SessionStore
from services.session.turns import TurnAlreadyExists, TurnInProgress, TurnState
from services.session.upkeep import Upkeep
from tests.conditions import eventually
from tests.session import samples
from tests.session.starts import Starter, starter
from tests.session.tables import counts


def key(request_id: str = "", content: str = "x", *, rpc: str = "StartTurn", scope: str = "s1") -> RequestKey:
    return key_of(rpc, "default", scope, request_id, session_pb2.StartTurnRequest(turn_id=content))


def creating(request_id: str = "", content: str = "x") -> RequestKey:
    return key(request_id, content, rpc="CreateSession", scope="")


@pytest.fixture
async def sessions(database: Database) -> SessionStore:
    return SessionStore(database)


@pytest.fixture
async def turns(database: Database, sessions: SessionStore) -> Starter:
    await sessions.create(samples.new_session(), creating(), by=samples.LATER)
    return starter(database)


async def end(database_url: str, turn_id: str = "t1") -> None:
    connection = await asyncpg.connect(database_url)
    await connection.execute(
        """
        UPDATE session.turns SET state = 'FAILED', end_reason = 'NO_RUNNER', phase = NULL,
            end_time = clock_timestamp()
        WHERE turn_id = $1
        """,
        turn_id,
    )
    await connection.close()


async def test_a_session_is_stored_once(sessions: SessionStore) -> None:
    first = await sessions.create(samples.new_session(), creating(), by=samples.LATER)
    assert (first.version, first.head_seq, first.token) == (1, 0, 0)
    with pytest.raises(SessionAlreadyExists):
        await sessions.create(
            replace(samples.new_session(), workspace_id="ws_other"), creating(), by=samples.LATER
        )


async def test_projects_do_not_see_each_other(sessions: SessionStore, database: Database) -> None:
    await sessions.create(samples.new_session(), creating(), by=samples.LATER)
    await sessions.create(
        samples.new_session(project="other"), replace(creating(), project="other"), by=samples.LATER
    )
    with pytest.raises(SessionNotFound):
        await starter(database).start(samples.new_turn(project="third"), key())


async def test_the_same_request_id_makes_one_session(sessions: SessionStore) -> None:
    drafts = [replace(samples.new_session(f"s{n}"), workspace_id=f"ws_{n}") for n in range(8)]
    made = await asyncio.gather(
        *(sessions.create(draft, creating("r1"), by=samples.LATER) for draft in drafts)
    )
    assert len({(session.session_id, session.workspace_id) for session in made}) == 1


async def test_a_request_id_with_other_content_is_refused(sessions: SessionStore) -> None:
    await sessions.create(samples.new_session(), creating("r1", "one"), by=samples.LATER)
    with pytest.raises(RequestIdReused) as refusal:
        await sessions.create(samples.new_session("s2"), creating("r1", "two"), by=samples.LATER)
    assert refusal.value.metadata == {"request_id": "r1", "rpc": "CreateSession"}
    with pytest.raises(RequestIdReused):
        await sessions.find_repeated(creating("r1", "two"), "s2")


async def test_request_ids_of_other_calls_are_not_confused(sessions: SessionStore, turns: Starter) -> None:
    await turns.start(samples.new_turn(), key("r1"))
    await sessions.create(samples.new_session("s2"), creating("r1"), by=samples.LATER)
    other = await turns.start(samples.new_turn("t1", "s2"), key("r1", scope="s2"))
    assert other.session_id == "s2"


async def test_whether_a_session_was_stored_can_be_asked(sessions: SessionStore) -> None:
    draft = samples.new_session()
    assert await sessions.find_stored(draft) is None
    stored = await sessions.create(draft, creating(), by=samples.LATER)
    assert await sessions.find_stored(draft) == stored
    assert await sessions.find_stored(replace(draft, workspace_id="ws_other")) is None


async def test_asking_waits_for_a_commit_under_way(sessions: SessionStore, database: Database) -> None:
    draft = samples.new_session()
    async with database.transaction() as connection:
        await connection.execute("SELECT pg_advisory_xact_lock(hashtextextended($1, 0))", draft.workspace_id)
        asking = asyncio.create_task(sessions.find_stored(draft))
        await blocked(database)
        assert not asking.done()
    assert await asking is None


async def blocked(database: Database) -> None:
    """Return when some connection waits for a lock."""

    async def waits() -> bool:
        async with database.connection() as connection:
            return bool(
                await connection.fetchval(
                    "SELECT true FROM pg_stat_activity WHERE wait_event_type = 'Lock' "
                    "AND datname = current_database() LIMIT 1"
                )
            )

    await eventually(waits)


async def test_an_admitted_turn_has_its_message_as_first_record(turns: Starter, database: Database) -> None:
    turn = await turns.start(samples.new_turn(), key())
    assert (turn.state, turn.number, turn.first_seq, turn.previous_turn_id) == (TurnState.ADMITTED, 1, 1, "")
    assert turn.traceparent == samples.TRACEPARENT
    page = await RecordStore(database).page("default", "s1", 0, limit=10)
    assert page.head_seq == 1
    [record] = page.records
    assert (record.seq, record.record_id, record.turn_seq) == (1, "t1/user_message", 0)
    body = record_pb2.RecordBody.FromString(record.body)
    assert body.user_message.SerializeToString() == samples.prompt()


async def test_turns_follow_each_other(turns: Starter, database_url: str) -> None:
    await turns.start(samples.new_turn("t1"), key())
    await end(database_url, "t1")
    second = await turns.start(samples.new_turn("t2"), key())
    assert (second.number, second.previous_turn_id, second.first_seq) == (2, "t1", 2)


async def test_a_busy_session_names_its_turn_and_nothing_is_written(
    turns: Starter, database_url: str
) -> None:
    await turns.start(samples.new_turn("t1"), key())
    before = await counts(database_url)
    with pytest.raises(TurnInProgress) as refusal:
        await turns.start(samples.new_turn("t2"), key("r1"))
    assert refusal.value.metadata == {
        "session_id": "s1",
        "turn_id": "t1",
        "state": "ADMITTED",
        "phase": "WAITING_FOR_RUNNER",
    }
    assert await counts(database_url) == before
    await end(database_url)
    # The refused call left no request id behind: the same call is now a first one.
    assert (await turns.start(samples.new_turn("t2"), key("r1"))).turn_id == "t2"


async def test_a_turn_id_is_used_once(turns: Starter, database_url: str) -> None:
    await turns.start(samples.new_turn("t1"), key())
    for _ in range(2):
        before = await counts(database_url)
        with pytest.raises(TurnAlreadyExists):
            await turns.start(samples.new_turn("t1"), key("r1"))
        assert await counts(database_url) == before
        await end(database_url)


async def test_a_repeated_start_reads_the_turn_as_it_is_now(turns: Starter, database_url: str) -> None:
    first = await turns.start(samples.new_turn("t1"), key("r1"))
    again = await turns.start(samples.new_turn("t9"), key("r1"))
    assert again == first
    await end(database_url)
    ended = await turns.start(samples.new_turn("t8"), key("r1"))
    assert (ended.turn_id, ended.state) == ("t1", TurnState.FAILED)


async def test_a_slot_taken_without_the_lock_is_seen_all_the_same(
    turns: Starter, database: Database, database_url: str
) -> None:
    intruder = await asyncpg.connect(database_url)
    transaction = intruder.transaction()
    await transaction.start()
    await intruder.execute(
        """
        INSERT INTO session.turns (project, session_id, turn_id, number, state, phase, prompt,
            admit_time)
        VALUES ('default', 's1', 'intruder', 1, 'ADMITTED', 'WAITING_FOR_RUNNER', '', clock_timestamp())
        """
    )
    starting = asyncio.create_task(turns.start(samples.new_turn("t1"), key()))
    await blocked(database)
    await transaction.commit()
    await intruder.close()
    with pytest.raises(TurnInProgress) as refusal:
        await starting
    assert refusal.value.metadata["turn_id"] == "intruder"


async def test_a_session_of_unknown_binding_takes_no_turn(turns: Starter, database_url: str) -> None:
    connection = await asyncpg.connect(database_url)
    await connection.execute("UPDATE session.sessions SET binding_kind = 'orbital'")
    await connection.close()
    before = await counts(database_url)
    with pytest.raises(BindingUnresolved, match="orbital"):
        await turns.start(samples.new_turn(), key("r1"))
    assert await counts(database_url) == before


async def test_request_ids_are_forgotten_when_they_are_old(
    turns: Starter, database: Database, database_url: str
) -> None:
    await turns.start(samples.new_turn("t1"), key("old"))
    await end(database_url)
    await turns.start(samples.new_turn("t2"), key("new"))
    connection = await asyncpg.connect(database_url)
    await connection.execute(
        "UPDATE session.request_ids SET create_time = create_time - interval '25 h' WHERE request_id = 'old'"
    )
    assert not await RequestStore(database).purge(timedelta(hours=24))
    left = await connection.fetch("SELECT request_id FROM session.request_ids")
    await connection.close()
    assert [row["request_id"] for row in left] == ["new"]


async def test_request_ids_are_forgotten_in_batches(database: Database, database_url: str) -> None:
    connection = await asyncpg.connect(database_url)
    await connection.execute(
        """
        INSERT INTO session.request_ids (project, scope, rpc, request_id, fingerprint, create_time)
        SELECT 'default', 's1', 'StartTurn', 'r' || number, '', clock_timestamp() - interval '25 h'
        FROM generate_series(1, 1500) AS number
        """
    )
    upkeep = Upkeep(RequestStore(database).purge, 24 * 3600.0)
    assert await upkeep.step() == 0
    assert await connection.fetchval("SELECT count(*) FROM session.request_ids") == 500
    assert await upkeep.step() > 0
    assert await connection.fetchval("SELECT count(*) FROM session.request_ids") == 0
    await connection.close()
