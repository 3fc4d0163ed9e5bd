"""Databases of tests: their addresses, and single statements from outside."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Coroutine
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import Any, TypeVar
from urllib.parse import urlsplit, urlunsplit

import asyncpg

T = TypeVar("T")


class Clones:
    """Clones of a template for one test after the other.

    The next one is made, and the last one removed, while tests run.
    """

    def __init__(self, url: str, template: str) -> None:
        """`url` leads to the server. Nothing is made before the first is asked for."""
        self._url = url
        self._template = template
        self._worker = ThreadPoolExecutor(1, "clones")
        self._next: Future[str] | None = None
        self._removals: list[Future[None]] = []

    @asynccontextmanager
    async def one(self) -> AsyncIterator[str]:
        """A clone for the time of the block; gives its URL."""
        ready = self._next or self._begin(self._make())
        self._next = self._begin(self._make())
        name = await asyncio.wrap_future(ready)
        try:
            yield in_database(self._url, name)
        finally:
            self._removals.append(self._begin(_drop(self._url, name)))

    def close(self) -> None:
        """Make and remove no more; raises what went wrong with a removal."""
        self._worker.shutdown()
        for removal in self._removals:
            removal.result()

    def _begin(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        return self._worker.submit(lambda: asyncio.run(work))

    async def _make(self) -> str:
        return await _clone(self._url, self._template)


def in_database(url: str, name: str) -> str:
    """The same server, another database."""
    return urlunsplit(urlsplit(url)._replace(path=f"/{name}"))


@asynccontextmanager
async def cloned(url: str, template: str) -> AsyncIterator[str]:
    """A clone of a database of the server, for the time of the block; gives its URL."""
    name = await _clone(url, template)
    try:
        yield in_database(url, name)
    finally:
        await _drop(url, name)


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


async def _clone(url: str, template: str) -> str:
    name = f"test_{secrets.token_hex(6)}"
    await execute(url, f'CREATE DATABASE "{name}" TEMPLATE "{template}" STRATEGY file_copy')
    return name


async def _drop(url: str, name: str) -> None:
    await execute(url, f'DROP DATABASE "{name}" WITH (FORCE)')
