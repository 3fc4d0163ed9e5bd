"""LISTEN survives what its connection does not."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from services.common import hosts, subscription
from services.common.database import Database
from services.common.hosts import Connection
from tests.conditions import eventually
from tests.databases import execute, fetch_value


@pytest.fixture
async def heard(database: Database) -> AsyncIterator[list[str]]:
    """The payloads of channel `news`."""
    payloads: list[str] = []
    async with database.listen("news", payloads.append):
        await eventually(lambda: payloads == [""])
        payloads.clear()
        yield payloads


async def test_notifications_arrive_in_order(heard: list[str], database_url: str) -> None:
    for number in range(3):
        await execute(database_url, "SELECT pg_notify('news', $1)", str(number))
    await eventually(lambda: heard == ["0", "1", "2"])


async def test_a_lost_connection_is_made_again_and_said(heard: list[str], database_url: str) -> None:
    await execute(
        database_url,
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'test listen news'",
    )
    await eventually(lambda: heard == [""])
    await execute(database_url, "SELECT pg_notify('news', 'after')")
    await eventually(lambda: heard == ["", "after"])


async def test_closing_ends_the_connection(database: Database, database_url: str) -> None:
    async with database.listen("news", lambda _: None):
        await eventually(lambda: _listeners(database_url, 1))
    await eventually(lambda: _listeners(database_url, 0))
    assert not [task for task in asyncio.all_tasks() if "listening" in repr(task)]


@pytest.mark.parametrize("steps", range(6))
async def test_it_ends_when_the_connection_is_lost_at_the_same_moment(
    database: Database, monkeypatch: pytest.MonkeyPatch, steps: int
) -> None:
    made: list[Connection] = []

    async def connect(url: str, **options: Any) -> Connection:
        made.append(await hosts.connect(url, **options))
        return made[-1]

    monkeypatch.setattr(subscription, "connect", connect)
    heard: list[str] = []
    async with asyncio.timeout(20), database.listen("news", heard.append):
        await eventually(lambda: heard == [""])
        made[0].terminate()
        for _ in range(steps):
            await asyncio.sleep(0)


async def _listeners(url: str, expected: int) -> bool:
    query = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'test listen news'"
    return int(await fetch_value(url, query)) == expected
