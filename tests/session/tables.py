"""What is in the tables of the session service, seen from outside."""

from __future__ import annotations

import asyncpg

from tests.databases import fetch, fetch_value


async def counts(database_url: str) -> dict[str, int]:
    """Rows per table."""
    connection = await asyncpg.connect(database_url)
    try:
        row = await connection.fetchrow(
            """
            SELECT (SELECT count(*) FROM session.sessions) AS sessions,
                   (SELECT count(*) FROM session.turns) AS turns,
                   (SELECT count(*) FROM session.records) AS records,
                   (SELECT count(*) FROM session.commands) AS commands,
                   (SELECT count(*) FROM session.request_ids) AS request_ids,
                   (SELECT sum(head_seq) FROM session.sessions) AS head_seqs
            """
        )
    finally:
        await connection.close()
    return dict(row or {})


async def remains(database_url: str, session_id: str) -> dict[str, int]:
    """Rows about a session in any table of the service, by table; those without any are left out."""
    found = {}
    for table in await _tables_of_sessions(database_url):
        column = "scope" if table == "request_ids" else "session_id"
        count: int = await fetch_value(
            database_url,
            f"SELECT count(*) FROM session.{table} WHERE {column} = $1",
            session_id,
        )
        if count:
            found[table] = count
    return found


async def _tables_of_sessions(database_url: str) -> list[str]:
    rows = await fetch(
        database_url,
        """
        SELECT DISTINCT table_name FROM information_schema.columns
        WHERE table_schema = 'session' AND column_name IN ('session_id', 'scope')
        """,
    )
    return [row["table_name"] for row in rows]


async def tombstones(database_url: str) -> dict[str, int]:
    """The highest token of each deleted session."""
    rows = await fetch(database_url, "SELECT session_id, token FROM session.sessions WHERE state = 'DELETED'")
    return {row["session_id"]: row["token"] for row in rows}


async def workspaces(database_url: str) -> dict[str, str]:
    """The state of each workspace."""
    connection = await asyncpg.connect(database_url)
    try:
        rows = await connection.fetch("SELECT workspace_id, state FROM workspace.workspaces")
    finally:
        await connection.close()
    return {row["workspace_id"]: row["state"] for row in rows}
