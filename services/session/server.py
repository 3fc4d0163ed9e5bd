"""The session service put together."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass
from functools import partial

from moorage.session.v1 import journal_pb2, session_pb2
from moorage.session.v1.journal_pb2_grpc import add_JournalServiceServicer_to_server
from moorage.session.v1.session_pb2_grpc import add_SessionServiceServicer_to_server

from services.common.channels import Channels
from services.common.database import Database
from services.common.listeners import Listener
from services.common.serving import ServiceServer
from services.session.config import SessionSettings
from services.session.creation import Creation
from services.session.parts import Loop, Parts
from services.session.servicers.closing import CloseMethods
from services.session.servicers.commands import CommandMethods
from services.session.servicers.interactions import InteractionMethods
from services.session.servicers.journal import JournalServicer
from services.session.servicers.service import SessionServicer
from services.session.servicers.sessions import SessionMethods
from services.session.servicers.standing import StandingMethods
from services.session.servicers.turns import TurnMethods
from services.session.servicers.watch import WatchMethods
from services.session.store.commands import CommandStore
from services.session.store.history import HistoryStore
from services.session.store.records import RecordStore
from services.session.store.sessions import SessionStore
from services.session.store.standing import StandingStore
from services.session.store.turns import TurnStore
from services.session.store.views import ViewStore

NAME = "session"


@dataclass(frozen=True, slots=True)
class SessionReplica:
    """One replica of the session service."""

    server: ServiceServer
    journal: Listener
    database: Database
    channels: Channels
    loops: tuple[Loop, ...]
    drain: Loop

    @property
    def endpoint(self) -> str:
        """HOST:PORT for clients, once it serves."""
        return self.server.endpoint

    @property
    def journal_endpoint(self) -> str:
        """HOST:PORT for runners, once it serves."""
        return self.journal.endpoint

    async def serve(self) -> None:
        """Serve until SIGTERM or SIGINT."""
        async with self.database, self.channels:
            await self.server.serve(*self.loops, drain=self.drain)

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[str]:
        """Serve within the block, ready when it is entered; gives the clients' endpoint."""
        async with self.database, self.channels, asyncio.TaskGroup() as tasks:
            await self.server.start()
            running = [tasks.create_task(_awaited(loop)) for loop in self.loops]
            try:
                await self.server.until_ready()
                yield self.endpoint
            finally:
                await self.drain()
                for task in running:
                    task.cancel()
                await self.server.stop()


def build(settings: SessionSettings) -> SessionReplica:
    """A replica, not serving yet."""
    database = Database(settings, name="moorage-session")
    parts = Parts.of(settings, database)
    journal = _journal_servicer(database, parts)
    server = ServiceServer(settings, name=NAME)
    server.add(
        partial(add_SessionServiceServicer_to_server, _servicer(settings, database, parts)),
        session_pb2.DESCRIPTOR.services_by_name["SessionService"].full_name,
    )
    listener = server.add_listener(settings.journal_listen, settings.journal_advertise)
    listener.add(
        partial(add_JournalServiceServicer_to_server, journal),
        journal_pb2.DESCRIPTOR.services_by_name["JournalService"].full_name,
    )
    server.readiness("database", database.readiness(NAME))
    server.readiness("grant-keys", parts.peers.keys.ready)

    async def drain() -> None:
        journal.drain()
        await parts.transcripts.watching.drain()

    return SessionReplica(server, listener, database, parts.peers.channels, parts.loops, drain)


def _servicer(settings: SessionSettings, database: Database, parts: Parts) -> SessionServicer:
    sessions, turns, views = SessionStore(database), TurnStore(database), ViewStore(database)
    peers, closing, delivery = parts.peers, parts.closing, parts.stopping.delivery
    workspaces, leases, watching = peers.workspaces, peers.leases, parts.transcripts.watching
    creation = Creation(sessions, workspaces, leases, pool=settings.pool, window=settings.store_window)
    return SessionServicer(
        SessionMethods(
            creation, sessions, views, workspaces, leases, default_profile=settings.default_profile
        ),
        CloseMethods(closing.closes, closing.deletions, views, watching, closing=closing.closer.wake),
        TurnMethods(parts.queueing.starts, turns, watching, stopping=delivery.wake),
        CommandMethods(
            parts.stopping.stops,
            CommandStore(database),
            views,
            watching,
            peers.clock,
            deliver=delivery.hand_over,
        ),
        InteractionMethods(parts.questions.interactions, answered=parts.questions.delivery.wake),
        StandingMethods(StandingStore(database, parts.transcripts.writer)),
        WatchMethods(watching, RecordStore(database)),
    )


def _journal_servicer(database: Database, parts: Parts) -> JournalServicer:
    transcripts = parts.transcripts
    return JournalServicer(
        transcripts.journal,
        transcripts.appender,
        TurnStore(database),
        parts.questions.interactions,
        HistoryStore(database, transcripts.fence),
    )


async def _awaited(loop: Loop) -> None:
    await loop()
