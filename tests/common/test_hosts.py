"""A URL with several hosts: the primary is found past those that refuse, are silent, or may not write."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from urllib.parse import urlsplit

import asyncpg
import pytest

from services.common.database import Database
from services.common.errors import Unavailable
from services.common.hosts import connect, single_hosts
from services.common.migrations import pending
from services.common.settings import DatabaseSettings
from tests.conditions import eventually
from tests.databases import execute
from tests.replication import Pair

CLOSED = "127.0.0.1:1"


@pytest.fixture
async def silent() -> AsyncIterator[str]:
    """A host that accepts connections and never says a word, as one that hangs."""
    held: list[asyncio.StreamWriter] = []
    server = await asyncio.start_server(lambda _, writer: held.append(writer), "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()
    yield f"{host}:{port}"
    for writer in held:
        writer.close()
    server.close()


@pytest.fixture
async def pair(tmp_path: Path) -> AsyncIterator[Pair]:
    """A primary and its standby."""
    both = Pair(tmp_path)
    try:
        yield await both.start()
    finally:
        both.remove()


def with_hosts(url: str, *hosts: str) -> str:
    """`{}` stands for the host of the URL."""
    parts = urlsplit(url)
    user, _, host = parts.netloc.rpartition("@")
    return parts._replace(netloc=f"{user}@{','.join(hosts).format(host)}").geturl()


def test_each_host_has_a_url_of_its_own() -> None:
    url = "postgresql://u:p%40q@a:1,[::1]:2,c/db?sslmode=require"
    assert single_hosts(url) == [
        "postgresql://u:p%40q@a:1/db?sslmode=require",
        "postgresql://u:p%40q@[::1]:2/db?sslmode=require",
        "postgresql://u:p%40q@c/db?sslmode=require",
    ]
    assert single_hosts("postgresql:///db?host=/tmp") == ["postgresql:///db?host=/tmp"]


async def test_a_host_that_refuses_or_is_silent_holds_nobody_up(empty_database_url: str, silent: str) -> None:
    for hosts in ((CLOSED, "{}"), (silent, "{}"), (silent, CLOSED, "{}"), ("{}", silent)):
        async with asyncio.timeout(3):
            connection = await connect(with_hosts(empty_database_url, *hosts), timeout=10)
        assert await connection.fetchval("SELECT 1") == 1
        await connection.close()


async def test_without_a_good_host_all_reasons_are_told(silent: str) -> None:
    url = f"postgresql://u:secret@{silent},{CLOSED}/db"
    with pytest.raises(ConnectionError) as caught:
        await connect(url, timeout=1)
    assert silent in str(caught.value)
    assert CLOSED in str(caught.value)
    assert "secret" not in str(caught.value)


async def test_who_is_cancelled_leaves_no_connection(empty_database_url: str, silent: str) -> None:
    url = with_hosts(empty_database_url, silent, silent)
    connecting = asyncio.create_task(connect(url, timeout=10))
    await eventually(lambda: len(asyncio.all_tasks()) >= 3)
    connecting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await connecting
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_of_two_servers_the_primary_is_taken_whatever_their_order(pair: Pair) -> None:
    await execute(pair.primary.url, "CREATE TABLE boats (name text)")
    hosts = [urlsplit(url).netloc.rpartition("@")[2] for url in (pair.standby_url, pair.primary.url)]
    for order in (hosts, hosts[::-1]):
        url = with_hosts(pair.primary.url, *order)
        async with Database(DatabaseSettings(database_url=url)) as database:
            await database.ping()
            async with database.transaction() as connection:
                await connection.execute("INSERT INTO boats VALUES ('a')")
        assert await pending(url, "owner") != []


async def test_a_standby_alone_is_no_database(pair: Pair) -> None:
    async with Database(DatabaseSettings(database_url=pair.standby_url)) as database:
        with pytest.raises(Unavailable):
            await database.ping()


async def test_notifications_come_from_the_new_primary(pair: Pair) -> None:
    heard: list[str] = []
    async with (
        Database(DatabaseSettings(database_url=pair.url)) as database,
        database.listen("boats", heard.append),
    ):
        await eventually(lambda: heard == [""], what="it listens")
        pair.primary.kill()
        await pair.promote()
        await eventually(lambda: heard == ["", ""], within=30, what="it listens again")
        await execute(pair.standby_url, "NOTIFY boats, 'a'")
        await eventually(lambda: heard == ["", "", "a"])
        with contextlib.suppress(asyncpg.PostgresError):
            await database.ping()
