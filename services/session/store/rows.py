"""Rows to domain types, and reading several of them as of one moment."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from dataclasses import fields
from typing import Any

import asyncpg

from services.common.database import Connection, Database


def values_of(row: asyncpg.Record, kind: type[Any]) -> dict[str, Any]:
    """The columns that a dataclass names; a newer schema may have more."""
    return {field.name: row[field.name] for field in fields(kind)}


@contextlib.asynccontextmanager
async def snapshot(database: Database) -> AsyncIterator[Connection]:
    """A transaction that only reads, and whose statements all see the same moment."""
    async with database.transaction() as connection:
        await connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
        yield connection
