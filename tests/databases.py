"""Databases of tests: their addresses, and single statements from outside."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import asyncpg


def in_database(url: str, name: str) -> str:
    """The same server, another database."""
    return urlunsplit(urlsplit(url)._replace(path=f"/{name}"))


@asynccontextmanager
async def cloned(url: str, template: str) -> AsyncIterator[str]:
    """A clone of a database of the server, for the time of the block; gives its URL."""
    name = f"test_{secrets.token_hex(6)}"
    await execute(url, f'CREATE DATABASE "{name}" TEMPLATE "{template}" STRATEGY file_copy')
    try:
        yield in_database(url, name)
    finally:
        await execute(url, f'DROP DATABASE "{name}" WITH (FORCE)')


async def execute(url: str, statement: str, *arguments: object) -> None:
    """Run one statement on a connection of its own."""
    connection = await asyncpg.connect(url)
    try:
        await connection.execute(statement, *arguments)
    finally:
        await connection.close()


async def fetch(url: str, query: str, *arguments: object) -> list[asyncpg.Record]:
    """All rows that a query gives, on a connection of its own."""
    connection = await asyncpg.connect(url)
    try:
        rows: list[asyncpg.Record] = await connection.fetch(query, *arguments)
        return rows
    finally:
        await connection.close()


async def fetch_value(url: str, query: str, *arguments: object) -> Any:
    """The first value that a query gives, on a connection of its own."""
    connection = await asyncpg.connect(url)
    try:
        return await connection.fetchval(query, *arguments)
    finally:
        await connection.close()
