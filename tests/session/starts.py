"""Turns as tests start them, at the store."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

from services.common.clock import SystemClock
from services.common.database import Database
from services.session.queue import QueueBounds
from services.session.requests import RequestKey
from services.session.store.starting import StartStore
from services.session.store.stopping import StopStore
from services.session.store.turns import TurnStore
from services.session.store.writing import Writer
from services.session.turns import NewTurn, Turn

LIMIT = 20
PATIENCE = 42.0
BOUNDS = QueueBounds(LIMIT, timedelta(hours=24))


class Starter:
    """Starts turns and reads them."""

    def __init__(self, database: Database, writer: Writer, bounds: QueueBounds = BOUNDS) -> None:
        self._turns = TurnStore(database)
        self._starts = StartStore(writer, StopStore(writer, SystemClock(), patience=PATIENCE), bounds)

    async def start(self, draft: NewTurn, key: RequestKey) -> Turn:
        """Start a turn; as it stands then."""
        turn_id = await self._starts.start(draft, key)
        return await self._turns.get(draft.project, draft.session_id, turn_id)


def writer_of(database: Database, changed: Callable[[str, str], None] = lambda *_: None) -> Writer:
    """Changes sessions; nobody but `changed` is told."""
    return Writer(database, changed)


def starter(database: Database) -> Starter:
    """Starts turns of which nobody is told."""
    return Starter(database, writer_of(database))
