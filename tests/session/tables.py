"""What is in the tables of the session service, seen from outside."""

from __future__ import annotations

import asyncpg


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


async def workspaces(database_url: str) -> dict[str, str]:
    """The state of each workspace."""
    connection = await asyncpg.connect(database_url)
    try:
        rows = await connection.fetch("SELECT workspace_id, state FROM workspace.workspaces")
    finally:
        await connection.close()
    return {row["workspace_id"]: row["state"] for row in rows}
