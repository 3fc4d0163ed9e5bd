"""Rows to domain types, and reading several of them as of one moment."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Sequence
from dataclasses import MISSING, dataclass, fields
from typing import Any, Final, Generic, TypeVar

import asyncpg

from services.common.database import Connection, Database

ItemT = TypeVar("ItemT")

# A page ends early at about this size, so that it stays far below what peers accept as a message.
PAGE_BYTES: Final = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Page(Generic[ItemT]):
    """What one page shows; it ends at its item limit or at about PAGE_BYTES, never empty for size."""

    items: Sequence[ItemT]
    more: bool


def values_of(row: asyncpg.Record, kind: type[Any]) -> dict[str, Any]:
    """The columns that a dataclass names, without what has a default; a newer schema may have more."""
    return {field.name: row[field.name] for field in fields(kind) if field.default is MISSING}


@contextlib.asynccontextmanager
async def snapshot(database: Database) -> AsyncIterator[Connection]:
    """A transaction that only reads, and whose statements all see the same moment."""
    async with database.snapshot() as connection:
        yield connection
