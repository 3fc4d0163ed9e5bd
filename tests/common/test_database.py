"""The pool: transactions, and what it survives. All on a real server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator

import asyncpg
import pytest

from services.cli.postgres.embedded import EmbeddedPostgres
from services.common.database import Database
from services.common.errors import DependencyUnavailable, NotFound, Unavailable
from services.common.settings import DatabaseSettings
from tests.conditions import eventually
from tests.databases import execute, fetch_value
from tests.servers import own_server


class NoSuchThing(NotFound):
    """there is no {thing}"""


@pytest.fixture(scope="module")
def own_postgres(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedPostgres]:
    """A server that tests may stop and start."""
    with own_server(tmp_path_factory) as server:
        yield server


@pytest.fixture
def own_settings(own_postgres: EmbeddedPostgres) -> DatabaseSettings:
    return DatabaseSettings(
        database_url=own_postgres.start(),
        database_pool_size=3,
        database_connect_timeout=1.0,
        database_acquire_timeout=1.0,
    )


@pytest.fixture
async def own_database(own_settings: DatabaseSettings) -> AsyncIterator[Database]:
    async with Database(own_settings, name="own") as database:
        yield database


@pytest.fixture
async def things(empty_database_url: str) -> str:
    """The URL of a database with a table of things."""
    await execute(empty_database_url, "CREATE TABLE things (name text PRIMARY KEY)")
    return empty_database_url


@pytest.fixture
async def database(things: str) -> AsyncIterator[Database]:
    settings = DatabaseSettings(
        database_url=things,
        database_pool_size=2,
        database_acquire_timeout=0.3,
        database_statement_timeout=1.0,
        database_command_timeout=2.0,
    )
    async with Database(settings, name="things") as database:
        yield database


async def count(url: str) -> int:
    return int(await fetch_value(url, "SELECT count(*) FROM things"))


async def backends(url: str, state: str = "%") -> int:
    query = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'things' AND state LIKE $1"
    return int(await fetch_value(url, query, state))


async def test_a_transaction_commits_at_its_end(database: Database, things: str) -> None:
    async with database.transaction() as connection:
        await connection.execute("INSERT INTO things VALUES ('a')")
        assert await count(things) == 0
    assert await count(things) == 1


async def test_an_error_rolls_back_and_is_raised_as_it_is(database: Database, things: str) -> None:
    with pytest.raises(NoSuchThing):
        async with database.transaction() as connection:
            await connection.execute("INSERT INTO things VALUES ('a')")
            raise NoSuchThing(thing="b")
    assert await count(things) == 0


async def test_a_violated_constraint_is_left_to_the_store(database: Database) -> None:
    with pytest.raises(asyncpg.UniqueViolationError) as caught:
        async with database.transaction() as connection:
            await connection.execute("INSERT INTO things VALUES ('a')")
            await connection.execute("INSERT INTO things VALUES ('a')")
    assert caught.value.constraint_name == "things_pkey"
    await database.ping()


async def test_a_cancelled_transaction_is_rolled_back_and_its_statement_ends(things: str) -> None:
    entered, pids = asyncio.Event(), set[int]()

    async def work(database: Database) -> None:
        async with database.transaction() as connection:
            await connection.execute("INSERT INTO things VALUES ('a')")
            pids.add(await connection.fetchval("SELECT pg_backend_pid()"))
            entered.set()
            await connection.execute("SELECT pg_sleep(7)")

    settings = DatabaseSettings(database_url=things, database_pool_size=2)
    async with Database(settings, name="things") as database:
        for _ in range(3):  # more than the pool is large: each gives its place back
            entered.clear()
            working = asyncio.create_task(work(database))
            await entered.wait()
            working.cancel()
            with pytest.raises(asyncio.CancelledError):
                await working
            await database.ping()
        await eventually(lambda: _nobody(things, "active"), within=5)
        assert len(pids) == 3
        assert await alive(things, pids) == 0
    assert await count(things) == 0


async def alive(url: str, pids: set[int]) -> int:
    query = "SELECT count(*) FROM pg_stat_activity WHERE pid = ANY($1)"
    return int(await fetch_value(url, query, list(pids)))


async def _nobody(url: str, state: str) -> bool:
    return await backends(url, state) == 0


async def test_a_connection_cancelled_between_statements_is_not_reused(
    database: Database, things: str
) -> None:
    async def work() -> None:
        async with database.transaction() as connection:
            await connection.execute("INSERT INTO things VALUES ('a')")
            await asyncio.sleep(30)

    working = asyncio.create_task(work())
    await eventually(lambda: _somebody(things, "idle in transaction"))
    working.cancel()
    await asyncio.wait({working})
    await eventually(lambda: _nobody(things, "idle in transaction"))
    await database.ping()


async def _somebody(url: str, state: str) -> bool:
    return await backends(url, state) > 0


async def test_a_statement_that_takes_too_long_is_unavailable(database: Database) -> None:
    with pytest.raises(Unavailable) as caught:
        async with database.connection() as connection:
            await connection.execute("SELECT pg_sleep(30)")
    assert caught.value.metadata["dependency"] == "database"
    assert "statement timeout" in caught.value.metadata["cause"]
    assert caught.value.retry_after is not None
    await database.ping()


async def test_an_answer_that_never_comes_is_given_up(things: str) -> None:
    settings = DatabaseSettings(database_url=things, database_command_timeout=0.2)
    async with Database(settings, name="things") as database:
        with pytest.raises(Unavailable):
            async with database.transaction() as connection:
                await connection.execute("SELECT pg_sleep(30)")
        await database.ping()


async def test_waiting_for_a_free_connection_ends(database: Database) -> None:
    async with database.connection(), database.connection():
        with pytest.raises(Unavailable, match="no connection within 0.3 s"):
            async with database.connection():
                pytest.fail("there is no third connection")
    await database.ping()


async def test_a_deadlock_is_unavailable_for_one_of_the_two(things: str) -> None:
    await execute(things, "INSERT INTO things VALUES ('a'), ('b')")
    both = asyncio.Barrier(2)

    async def lock(database: Database, first: str, second: str) -> None:
        async with database.transaction() as connection:
            await connection.execute("SELECT FROM things WHERE name = $1 FOR UPDATE", first)
            await both.wait()
            await connection.execute("SELECT FROM things WHERE name = $1 FOR UPDATE", second)

    async with Database(DatabaseSettings(database_url=things)) as database:
        results = await asyncio.gather(
            lock(database, "a", "b"), lock(database, "b", "a"), return_exceptions=True
        )
    assert [type(result) for result in results if result is not None] == [DependencyUnavailable]


async def test_opening_does_not_need_the_server(
    own_postgres: EmbeddedPostgres, own_settings: DatabaseSettings
) -> None:
    own_postgres.stop()
    async with Database(own_settings) as database:
        with pytest.raises(Unavailable):
            await database.ping()
        own_postgres.start()
        await database.ping()


async def test_the_pool_survives_a_restart_of_the_server(
    own_postgres: EmbeddedPostgres, own_database: Database
) -> None:
    async with own_database.connection(), own_database.connection():
        pass
    async with own_database.connection() as held:
        own_postgres.restart()
        with pytest.raises(Unavailable):
            async with own_database.transaction() as connection:
                await connection.execute("SELECT 1")
                await held.execute("SELECT 1")
    for _ in range(5):
        await own_database.ping()


async def test_a_transaction_cut_by_a_restart_is_unavailable(
    own_postgres: EmbeddedPostgres, own_database: Database
) -> None:
    with pytest.raises(Unavailable):
        async with own_database.transaction() as connection:
            await connection.execute("SELECT 1")
            own_postgres.restart()
            await connection.execute("SELECT 1")
    await own_database.ping()


async def test_a_backend_ended_by_the_operator_is_unavailable(database: Database, things: str) -> None:
    with pytest.raises(Unavailable):
        async with database.transaction() as connection:
            pid = await connection.fetchval("SELECT pg_backend_pid()")
            await execute(things, "SELECT pg_terminate_backend($1, 5000)", pid)
            await connection.execute("SELECT 1")
    await database.ping()


async def test_a_demoted_primary_is_left(database: Database, things: str) -> None:
    """A session that may only read is what a pool holds after a failover."""
    async with database.connection() as connection:
        await connection.execute("SET default_transaction_read_only = on")
        before = await connection.fetchval("SELECT pg_backend_pid()")
    with pytest.raises(Unavailable, match="not a writable primary"):
        await database.ping()
    async with database.connection() as connection:
        assert await connection.fetchval("SELECT pg_backend_pid()") != before
    await database.ping()


async def test_a_write_on_a_demoted_primary_expires_the_pool(database: Database, things: str) -> None:
    async with database.connection() as one, database.connection() as other:
        await one.execute("SET default_transaction_read_only = on")
        await other.execute("SET default_transaction_read_only = on")
    with pytest.raises(Unavailable, match="read-only"):
        async with database.transaction() as connection:
            await connection.execute("INSERT INTO things VALUES ('a')")
    async with database.connection() as one, database.connection() as other:
        await one.execute("INSERT INTO things VALUES ('a')")
        await other.execute("INSERT INTO things VALUES ('b')")
    assert await count(things) == 2


async def test_a_standby_is_refused_at_once(things: str) -> None:
    await execute(
        things,
        "DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET default_transaction_read_only = on', current_database()); END $$",
    )
    async with Database(DatabaseSettings(database_url=things)) as database:
        with pytest.raises(Unavailable, match="read-write"):
            await database.ping()


async def test_behind_a_pooler_nothing_is_kept_in_sessions(things: str) -> None:
    settings = DatabaseSettings(database_url=things, database_pooler=True)
    async with Database(settings) as database:
        async with database.transaction() as connection:
            assert await connection.fetchval("SELECT count(*) FROM things WHERE name = $1", "a") == 0
            assert await connection.fetchval("SELECT count(*) FROM pg_prepared_statements") == 0
        await database.ping()


async def test_what_was_cancelled_while_it_waited_for_a_connection_takes_none(database: Database) -> None:
    async with database.connection(), database.connection():
        waiting = asyncio.create_task(database.ping())
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.wait({waiting})
    async with database.connection(), database.connection():
        pass
