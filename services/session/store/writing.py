"""The one way to change turns and records: sessions locked, decided about, stored, and told of."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable, Collection, Mapping
from datetime import timedelta
from typing import Final

from services.common.database import Connection, Database
from services.common.failpoints import failpoint
from services.common.logs import get_logger
from services.session.journal.rules import SessionJournal, SessionKey
from services.session.outbox.offers import Claim
from services.session.sessions import SessionNotFound
from services.session.store.locking import Journals, lock_journals, save_journals

_log: Final = get_logger(__name__)

# Whoever admits a turn offers it at once. Should it die meanwhile, others do after so long.
_HOLD: Final = timedelta(seconds=2)


class Write:
    """A transaction; what is decided about the sessions that it locks is stored when it commits."""

    def __init__(self, connection: Connection) -> None:
        """The transaction has begun on this connection."""
        self.connection = connection
        self.journals: Journals = {}

    async def lock(self, turns: Mapping[SessionKey, Collection[str]]) -> Journals:
        """Lock the sessions that exist and read these turns and those begun; once in a transaction."""
        self.journals = await lock_journals(self.connection, turns)
        return self.journals


class Writer:
    """Opens transactions.

    `changed` is called for sessions that got records. `admitted` is given each turn that took the
    slot of one, claimed for a moment; without it whoever dispatches finds them.
    """

    def __init__(
        self,
        database: Database,
        changed: Callable[[str, str], None],
        admitted: Callable[[Claim], None] | None = None,
    ) -> None:
        """The service's database."""
        self._database = database
        self._changed = changed
        self._admitted = admitted

    @contextlib.asynccontextmanager
    async def open(self, name: str) -> AsyncIterator[Write]:
        """A transaction, committed at the end of the block; an error within stores nothing."""
        async with self._database.transaction() as connection:
            write = Write(connection)
            yield write
            claims = await save_journals(
                connection, write.journals.values(), _HOLD if self._admitted else None
            )
            await failpoint(f"session.{name}.before_commit")
        for journal in write.journals.values():
            self._tell(journal)
        if self._admitted is not None:
            for claim in claims:
                self._admitted(claim)
        await failpoint(f"session.{name}.after_commit")

    def _tell(self, journal: SessionJournal) -> None:
        """What was committed: watchers, and the log."""
        if journal.records:
            self._changed(*journal.key)
        for turn_id, ending, _ in journal.endings:
            names = {"project": journal.key.project, "session": journal.key.session_id, "turn": turn_id}
            _log.info("turn ended", state=ending.state, end_reason=ending.end_reason, **names)


def require(journals: Journals, key: SessionKey) -> SessionJournal:
    """The locked session, else SessionNotFound."""
    if journal := journals.get(key):
        return journal
    raise SessionNotFound(project=key.project, session_id=key.session_id)
