"""Stops as tests order and read them, at a desk."""

from __future__ import annotations

from services.common.validation import mint_id
from services.session.commands import Command, StopDraft
from services.session.journal.rules import SessionKey
from services.session.requests import RequestKey
from services.session.store.commands import CommandStore
from services.session.store.stopping import StopStore
from tests.session import samples
from tests.session.desks import Desk

PATIENCE = 42.0


async def stop(
    desk: Desk, turn_id: str = "", session_id: str = "s1", *, request_id: str = "", age: float = 0.0
) -> Command:
    """Order a Stop whose call arrived `age` seconds ago; the command as it stands then."""
    key = SessionKey("default", session_id)
    entered = desk.clock.boottime() - age
    draft = StopDraft(key, mint_id("command"), turn_id, samples.TRACEPARENT, entered)
    request = RequestKey("default", session_id, "StopTurn", request_id, f"named {turn_id}".encode())
    store = StopStore(desk.writer, desk.clock, patience=PATIENCE)
    return await read(desk, await store.stop(draft, request), session_id)


async def read(desk: Desk, command_id: str, session_id: str = "s1") -> Command:
    """A command as it stands."""
    return await CommandStore(desk.database).get(SessionKey("default", session_id), command_id)


async def all_commands(desk: Desk, session_id: str = "s1") -> list[Command]:
    """All commands of a session, oldest first."""
    async with desk.database.connection() as connection:
        rows = await connection.fetch(
            "SELECT command_id FROM session.commands WHERE session_id = $1 ORDER BY create_time", session_id
        )
    return [await read(desk, row["command_id"], session_id) for row in rows]
