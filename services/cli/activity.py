"""What a turn waits for, in words, while it says nothing itself."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from moorage.common.v1 import turn_pb2
from moorage.session.v1 import session_pb2

from services.cli.connection import Connection
from services.cli.stopping import held, released


@dataclass(frozen=True, slots=True)
class Seen:
    """A turn as it stands; `held` says that nothing runs which could let it out of the queue."""

    turn: session_pb2.Turn
    held: bool = False


Look = Callable[[], Awaitable[Seen]]


async def look(connection: Connection, session_id: str, turn_id: str) -> Seen:
    """How it stands now."""
    request = session_pb2.GetTurnRequest(session_id=session_id, turn_id=turn_id)
    turn = (await connection.sessions.GetTurn(request, metadata=connection.metadata)).turn
    queued = turn.state == turn_pb2.TURN_STATE_QUEUED
    return Seen(turn, held=queued and turn_id in await held(connection, session_id))


def words_of(seen: Seen) -> str:
    """What a turn waits for."""
    turn = seen.turn
    if turn.state == turn_pb2.TURN_STATE_QUEUED:
        waits = (
            f"held: {released(turn.session_id, turn.turn_id)}" if seen.held else "behind the turn in progress"
        )
        return f"queued, number {turn.queue_position}, {waits}"
    waits = turn.waiting_reason or "for the agent"
    if turn.HasField("stop_deadline"):
        waits = "for its end"
    return f"waiting {waits}"
