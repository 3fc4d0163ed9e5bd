"""SQL of the queue: what waits in it, and what has waited too long."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from services.common.database import Connection, Database
from services.session.journal.rules import SessionKey
from services.session.store.writing import Writer, require
from services.session.turns import QueuedTurn, Turn, TurnState


class QueueStore:
    """Expiry of the queues; each method is one statement or one transaction."""

    def __init__(self, database: Database, writer: Writer) -> None:
        """The service's database, and how its sessions are changed."""
        self._database = database
        self._writer = writer

    async def expire(self, key: SessionKey) -> None:
        """End what has waited in the session's queue for too long."""
        async with self._writer.open("expire_queue") as write:
            require(await write.lock({key: []}), key).expire_queue()

    async def overdue_sessions(self, limit: int) -> list[SessionKey]:
        """Sessions in whose queues a turn has waited for too long, the longest overdue first."""
        async with self._database.connection() as connection:
            rows = await connection.fetch(
                """
                SELECT project, session_id FROM session.turns
                WHERE state = 'QUEUED' AND queue_expire_time <= clock_timestamp()
                GROUP BY project, session_id
                ORDER BY min(queue_expire_time)
                LIMIT $1
                """,
                limit,
            )
        return [SessionKey(row["project"], row["session_id"]) for row in rows]

    async def next_expiry(self) -> float | None:
        """Seconds until the next turn has waited for too long, None when none waits."""
        async with self._database.connection() as connection:
            seconds: float | None = await connection.fetchval(
                """
                SELECT extract(epoch FROM min(queue_expire_time) - clock_timestamp())::float8
                FROM session.turns
                WHERE state = 'QUEUED'
                """
            )
        return seconds


async def read_queue(connection: Connection, key: SessionKey) -> list[QueuedTurn]:
    """The turns that wait for the session's slot, the next one first."""
    rows = await connection.fetch(
        """
        SELECT turn_id, create_time, queue_expire_time, interrupts FROM session.turns
        WHERE project = $1 AND session_id = $2 AND state = 'QUEUED'
        ORDER BY queue_order
        """,
        *key,
    )
    return [QueuedTurn(*row.values()) for row in rows]


async def placed(connection: Connection, key: SessionKey, turns: Sequence[Turn]) -> list[Turn]:
    """The session's turns with their places in its queue."""
    if not any(turn.state is TurnState.QUEUED for turn in turns):
        return list(turns)
    queue = await read_queue(connection, key)
    places = {queued.turn_id: place for place, queued in enumerate(queue, start=1)}
    return [replace(turn, queue_position=places.get(turn.turn_id, 0)) for turn in turns]
