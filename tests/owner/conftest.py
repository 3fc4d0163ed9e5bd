"""A replica of owner and two holders."""

from __future__ import annotations

from collections.abc import AsyncIterator

import asyncpg
import grpc
import pytest

from tests.owner.replicas import Connection, Holder, replica


@pytest.fixture
async def channel(database_url: str) -> AsyncIterator[grpc.aio.Channel]:
    """To a ready replica."""
    async with replica(database_url) as channel:
        yield channel


@pytest.fixture
def alice(channel: grpc.aio.Channel) -> Holder:
    """A holder."""
    return Holder(channel, "alice/1")


@pytest.fixture
def bob(channel: grpc.aio.Channel) -> Holder:
    """Another holder."""
    return Holder(channel, "bob/1")


@pytest.fixture
async def connection(database_url: str) -> AsyncIterator[Connection]:
    """Somebody else's session in the same database."""
    connection = await asyncpg.connect(database_url)
    yield connection
    await connection.close()
