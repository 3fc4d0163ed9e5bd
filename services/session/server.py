"""The session service put together."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from datetime import timedelta
from functools import partial

from moorage.session.v1 import journal_pb2, session_pb2
from moorage.session.v1.journal_pb2_grpc import add_JournalServiceServicer_to_server
from moorage.session.v1.session_pb2_grpc import add_SessionServiceServicer_to_server

from services.common.channels import Channels
from services.common.clock import SystemClock
from services.common.database import Database
from services.common.listeners import Listener
from services.common.loops import forever
from services.common.serving import ServiceServer
from services.fencing.keys import KeyCache
from services.fencing.loop import LeaseLoop, mint_holder
from services.fencing.verifier import GrantVerifier
from services.session.clients import Leases, Runners, Workspaces
from services.session.close.closer import Closer
from services.session.close.steps import CloseSteps
from services.session.config import SessionSettings
from services.session.creation import Creation
from services.session.expiry import InteractionExpiry, QueueExpiry
from services.session.journal.appending import Appender
from services.session.limits import LimitDefaults
from services.session.outbox.answers import AnswerDelivery
from services.session.outbox.delivery import StopDelivery
from services.session.outbox.direct import stop_adapter
from services.session.outbox.dispatch import Dispatcher
from services.session.outbox.offers import Claim
from services.session.queue import QueueBounds
from services.session.recovery.overdue import Overdue
from services.session.recovery.sweep import Sweep
from services.session.recovery.takeover import Takeover
from services.session.recovery.taking import Taker
from services.session.recovery.watchdog import Watchdog
from services.session.servicers.closing import CloseMethods
from services.session.servicers.commands import CommandMethods
from services.session.servicers.interactions import InteractionMethods
from services.session.servicers.journal import JournalServicer
from services.session.servicers.service import SessionServicer
from services.session.servicers.sessions import SessionMethods
from services.session.servicers.standing import StandingMethods
from services.session.servicers.turns import TurnMethods
from services.session.servicers.watch import WatchMethods
from services.session.store.answers import AnswerStore
from services.session.store.closing import CloseStore
from services.session.store.commands import CommandStore
from services.session.store.deleting import DeleteStore
from services.session.store.delivery import DeliveryStore
from services.session.store.dispatch import DispatchStore
from services.session.store.fence import Fence
from services.session.store.history import HistoryStore
from services.session.store.interactions import InteractionStore
from services.session.store.journal import JournalStore
from services.session.store.overdue import OverdueStore
from services.session.store.queue import QueueStore
from services.session.store.records import RecordStore
from services.session.store.requests import RequestStore
from services.session.store.sessions import SessionStore
from services.session.store.standing import StandingStore
from services.session.store.starting import StartStore
from services.session.store.stopping import StopStore
from services.session.store.takeover import TakeoverStore
from services.session.store.turns import TurnStore
from services.session.store.views import ViewStore
from services.session.store.watch import WatchStore
from services.session.store.writing import Writer
from services.session.upkeep import Upkeep
from services.session.watch.watching import Watching

NAME = "session"


@dataclass(frozen=True, slots=True)
class SessionReplica:
    """One replica of the session service."""

    server: ServiceServer
    journal: Listener
    database: Database
    channels: Channels
    loops: tuple[Callable[[], Awaitable[None]], ...]
    drain: Callable[[], Awaitable[None]]

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
    clock, channels = SystemClock(), Channels()
    database = Database(settings, name="moorage-session")
    owner = channels.to(settings.owner_address)
    leases, runners = Leases(owner), Runners(channels)
    workspaces = Workspaces(channels, settings.workspace_address)
    keys = KeyCache(owner, clock)
    verifier = GrantVerifier(keys, clock, max_clock_skew=settings.max_clock_skew)
    holder = LeaseLoop(mint_holder("session"), owner, clock)
    limits = LimitDefaults(settings.default_max_duration, settings.default_max_silence)

    sessions, turns, views = SessionStore(database), TurnStore(database), ViewStore(database)
    records, outbox = RecordStore(database), DispatchStore(database)
    watching = Watching(
        records,
        turns,
        WatchStore(database),
        clock,
        heartbeat=settings.watch_heartbeat,
        poll=settings.watch_poll,
    )

    def admitted(claim: Claim) -> None:
        dispatcher.hand_over(claim)

    writer = Writer(database, watching.changed, admitted)
    fence = Fence(verifier)
    journal = JournalStore(
        writer,
        fence,
        limits=limits,
        preparing_timeout=settings.preparing_timeout,
        interaction_timeout=settings.interaction_timeout,
    )
    appender = Appender(journal)
    dispatcher = Dispatcher(
        outbox,
        journal,
        leases,
        runners,
        clock,
        pool=settings.pool,
        window=settings.dispatch_window,
    )
    taker = Taker(
        journal,
        workspaces,
        holder,
        clock,
        lease_ttl=settings.service_lease,
        fence_timeout=settings.fence_timeout,
        max_clock_skew=settings.max_clock_skew,
    )
    takeovers = TakeoverStore(database)
    watchdog = Watchdog(outbox, leases, taker, clock, interval=settings.watchdog_interval)
    takeover = Takeover(
        takeovers,
        leases,
        taker,
        clock,
        admitted_patience=settings.admitted_patience,
        close_patience=settings.close_patience,
        interval=settings.watchdog_interval,
    )
    sweep = Sweep(outbox, takeovers, leases, runners, taker, clock, interval=settings.sweep_interval)
    stops = StopStore(
        writer, clock, patience=settings.stop_budget + settings.stop_kill_after + settings.stop_margin
    )
    delivery = StopDelivery(
        DeliveryStore(database), stop_adapter(settings.stop_delivery, leases, runners), clock
    )
    overdue = Overdue(
        OverdueStore(database),
        stops,
        clock,
        margin=settings.overrun_margin,
        interval=settings.sweep_interval,
        stopping=delivery.wake,
    )
    closes, deletions = CloseStore(database, writer), DeleteStore(database, writer)
    closer = Closer(
        closes,
        deletions,
        CloseSteps(views, stops, leases, runners, workspaces, taker, clock, stopping=delivery.wake),
        clock,
        changed=watching.changed,
    )
    interactions = InteractionStore(database, writer)
    answers = AnswerDelivery(AnswerStore(database), leases, runners, clock)
    expiry = InteractionExpiry(interactions, answers.wake)
    bounds = QueueBounds(settings.queue_limit, timedelta(seconds=settings.queue_expiry))
    starts = StartStore(writer, stops, bounds)
    queue_expiry = QueueExpiry(QueueStore(database, writer))
    commands = CommandStore(database)
    request_upkeep = Upkeep(RequestStore(database).purge, settings.request_id_retention)
    command_upkeep = Upkeep(commands.purge, settings.command_retention)

    servicer = SessionServicer(
        SessionMethods(
            Creation(sessions, workspaces, leases, pool=settings.pool, window=settings.store_window),
            sessions,
            views,
            workspaces,
            leases,
            default_profile=settings.default_profile,
        ),
        CloseMethods(closes, deletions, views, watching, closing=closer.wake),
        TurnMethods(starts, turns, watching, stopping=delivery.wake),
        CommandMethods(stops, commands, views, watching, clock, deliver=delivery.hand_over),
        InteractionMethods(interactions, answered=answers.wake),
        StandingMethods(StandingStore(database, writer)),
        WatchMethods(watching, records),
    )
    journal_servicer = JournalServicer(journal, appender, turns, interactions, HistoryStore(database, fence))
    server = ServiceServer(settings, name=NAME)
    server.add(
        partial(add_SessionServiceServicer_to_server, servicer),
        session_pb2.DESCRIPTOR.services_by_name["SessionService"].full_name,
    )
    listener = server.add_listener(settings.journal_listen, settings.journal_advertise)
    listener.add(
        partial(add_JournalServiceServicer_to_server, journal_servicer),
        journal_pb2.DESCRIPTOR.services_by_name["JournalService"].full_name,
    )
    server.readiness("database", database.readiness(NAME))
    server.readiness("grant-keys", keys.ready)
    loops = (
        keys.run,
        holder.run,
        watching.run,
        appender.run,
        dispatcher.run,
        delivery.run,
        closer.run,
        answers.run,
        partial(forever, "expiring questions", expiry.step),
        partial(forever, "expiring queued turns", queue_expiry.step),
        watchdog.run,
        takeover.run,
        sweep.run,
        partial(forever, "stopping turns that exceed their bounds", overdue.step),
        partial(forever, "forgetting request ids", request_upkeep.step),
        partial(forever, "forgetting commands", command_upkeep.step),
    )

    async def drain() -> None:
        journal_servicer.drain()
        await watching.drain()

    return SessionReplica(server, listener, database, channels, loops, drain)


async def _awaited(loop: Callable[[], Awaitable[None]]) -> None:
    await loop()
