"""Queues as tests read and age them, at a desk."""

from __future__ import annotations

from services.session.journal.rules import SessionKey
from services.session.requests import RequestKey
from services.session.store.closing import CloseStore
from services.session.store.queue import QueueStore
from services.session.store.views import ViewStore
from services.session.turns import IfBusy, Turn
from tests.session import samples
from tests.session.desks import Desk


async def queue(desk: Desk, session_id: str = "s1") -> list[str]:
    """The turns that wait, next one first; `!` marks those that interrupt."""
    view = await ViewStore(desk.database).get("default", session_id)
    return [f"{waiting.turn_id}{'!' * waiting.interrupt}" for waiting in view.queue]


async def enqueue(desk: Desk, turn_id: str, session_id: str = "s1", **fields: str) -> Turn:
    """StartTurn that waits when the session is busy."""
    return await desk.turn(turn_id, session_id, if_busy=IfBusy.ENQUEUE, **fields)


async def interrupt(desk: Desk, turn_id: str, session_id: str = "s1", **fields: str) -> Turn:
    """StartTurn that stops what is in progress."""
    return await desk.turn(turn_id, session_id, if_busy=IfBusy.INTERRUPT, **fields)


async def run_out(desk: Desk, turn_id: str, session_id: str = "s1") -> None:
    """Let a queued turn have waited too long."""
    async with desk.database.connection() as connection:
        await connection.execute(
            """
            UPDATE session.turns SET queue_expire_time = clock_timestamp()
            WHERE session_id = $1 AND turn_id = $2 AND state = 'QUEUED'
            """,
            session_id,
            turn_id,
        )


async def expire(desk: Desk, session_id: str = "s1") -> None:
    """What the loop does."""
    await QueueStore(desk.database, desk.writer).expire(SessionKey("default", session_id))


async def close(desk: Desk, session_id: str = "s1") -> None:
    """CloseSession."""
    store = CloseStore(desk.database, desk.writer)
    request = RequestKey("default", session_id, "CloseSession", "", b"")
    await store.close(SessionKey("default", session_id), samples.TRACEPARENT, request)


async def story(desk: Desk, session_id: str = "s1") -> list[str]:
    """Which records the transcript has, as `turn kind`."""
    return [f"{record.turn_id} {record.kind}" for record in await desk.transcript(session_id)]
