"""The pool: what it gives, and what it survives."""

from services.common.database import Database


async def test_ping(database: Database) -> None:
    await database.ping()
