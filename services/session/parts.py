"""What a replica consists of, by what it is for: each part is put together from those before it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import timedelta
from functools import partial

from services.common.channels import Channels
from services.common.clock import Clock, SystemClock
from services.common.database import Database
from services.common.loops import forever
from services.fencing.keys import KeyCache
from services.fencing.loop import LeaseLoop, mint_holder
from services.fencing.verifier import GrantVerifier
from services.session.clients import Leases, Runners, Workspaces
from services.session.close.closer import Closer
from services.session.close.steps import CloseSteps
from services.session.config import SessionSettings
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
from services.session.store.answers import AnswerStore
from services.session.store.closing import CloseStore
from services.session.store.commands import CommandStore
from services.session.store.deleting import DeleteStore
from services.session.store.delivery import DeliveryStore
from services.session.store.dispatch import DispatchStore
from services.session.store.fence import Fence
from services.session.store.interactions import InteractionStore
from services.session.store.journal import JournalStore
from services.session.store.overdue import OverdueStore
from services.session.store.queue import QueueStore
from services.session.store.records import RecordStore
from services.session.store.requests import RequestStore
from services.session.store.starting import StartStore
from services.session.store.stopping import StopStore
from services.session.store.takeover import TakeoverStore
from services.session.store.turns import TurnStore
from services.session.store.views import ViewStore
from services.session.store.watch import WatchStore
from services.session.store.writing import Writer
from services.session.upkeep import Upkeep
from services.session.watch.watching import Watching

Loop = Callable[[], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Peers:
    """Whom it calls, and as whom it holds leases."""

    clock: Clock
    channels: Channels
    leases: Leases
    runners: Runners
    workspaces: Workspaces
    keys: KeyCache
    holder: LeaseLoop

    @classmethod
    def of(cls, settings: SessionSettings) -> Peers:
        """By the addresses of the settings."""
        clock, channels = SystemClock(), Channels()
        owner = channels.to(settings.owner_address)
        return cls(
            clock,
            channels,
            Leases(owner),
            Runners(channels),
            Workspaces(channels, settings.workspace_address),
            KeyCache(owner, clock),
            LeaseLoop(mint_holder("session"), owner, clock),
        )

    @property
    def loops(self) -> tuple[Loop, ...]:
        """What has to run."""
        return (self.keys.run, self.holder.run)


@dataclass(frozen=True, slots=True)
class Transcripts:
    """What is written of turns, who reads it as it comes, and how turns get to runners."""

    fence: Fence
    watching: Watching
    writer: Writer
    journal: JournalStore
    appender: Appender
    dispatcher: Dispatcher

    @classmethod
    def of(cls, settings: SessionSettings, database: Database, peers: Peers) -> Transcripts:
        """A turn that this replica admits goes to its dispatcher at once."""

        def admitted(claim: Claim) -> None:
            dispatcher.hand_over(claim)

        watching = _watching(settings, database, peers)
        writer = Writer(database, watching.changed, admitted)
        fence = Fence(GrantVerifier(peers.keys, peers.clock, max_clock_skew=settings.max_clock_skew))
        journal = JournalStore(
            writer,
            fence,
            limits=LimitDefaults(settings.default_max_duration, settings.default_max_silence),
            preparing_timeout=settings.preparing_timeout,
            interaction_timeout=settings.interaction_timeout,
        )
        dispatcher = Dispatcher(
            DispatchStore(database),
            journal,
            peers.leases,
            peers.runners,
            peers.clock,
            pool=settings.pool,
            window=settings.dispatch_window,
        )
        return cls(fence, watching, writer, journal, Appender(journal), dispatcher)

    @property
    def loops(self) -> tuple[Loop, ...]:
        """What has to run."""
        return (self.watching.run, self.appender.run, self.dispatcher.run)


def _watching(settings: SessionSettings, database: Database, peers: Peers) -> Watching:
    return Watching(
        RecordStore(database),
        TurnStore(database),
        WatchStore(database),
        peers.clock,
        heartbeat=settings.watch_heartbeat,
        poll=settings.watch_poll,
    )


@dataclass(frozen=True, slots=True)
class Stopping:
    """Stops: stored, delivered, and those that a turn's bounds ask for."""

    stops: StopStore
    delivery: StopDelivery
    overdue: Overdue

    @classmethod
    def of(cls, settings: SessionSettings, database: Database, peers: Peers, writer: Writer) -> Stopping:
        """A bound that is exceeded wakes the delivery."""
        patience = settings.stop_budget + settings.stop_kill_after + settings.stop_margin
        stops = StopStore(writer, peers.clock, patience=patience)
        adapter = stop_adapter(settings.stop_delivery, peers.leases, peers.runners)
        delivery = StopDelivery(DeliveryStore(database), adapter, peers.clock)
        overdue = Overdue(
            OverdueStore(database),
            stops,
            peers.clock,
            margin=settings.overrun_margin,
            interval=settings.sweep_interval,
            stopping=delivery.wake,
        )
        return cls(stops, delivery, overdue)

    @property
    def loops(self) -> tuple[Loop, ...]:
        """What has to run."""
        return (
            self.delivery.run,
            partial(forever, "stopping turns that exceed their bounds", self.overdue.step),
        )


@dataclass(frozen=True, slots=True)
class Recovery:
    """What takes sessions over from holders that are gone, or do not do what they hold them for."""

    taker: Taker
    watchdog: Watchdog
    takeover: Takeover
    sweep: Sweep

    @classmethod
    def of(
        cls, settings: SessionSettings, database: Database, peers: Peers, journal: JournalStore
    ) -> Recovery:
        """All of them take sessions in one way."""
        taker = Taker(
            journal,
            peers.workspaces,
            peers.holder,
            peers.clock,
            lease_ttl=settings.service_lease,
            fence_timeout=settings.fence_timeout,
            max_clock_skew=settings.max_clock_skew,
        )
        outbox, takeovers = DispatchStore(database), TakeoverStore(database)
        leases, clock, interval = peers.leases, peers.clock, settings.watchdog_interval
        takeover = Takeover(
            takeovers,
            leases,
            taker,
            clock,
            admitted_patience=settings.admitted_patience,
            close_patience=settings.close_patience,
            interval=interval,
        )
        return cls(
            taker,
            Watchdog(outbox, leases, taker, clock, interval=interval),
            takeover,
            Sweep(outbox, takeovers, leases, peers.runners, taker, clock, interval=settings.sweep_interval),
        )

    @property
    def loops(self) -> tuple[Loop, ...]:
        """What has to run."""
        return (self.watchdog.run, self.takeover.run, self.sweep.run)


@dataclass(frozen=True, slots=True)
class Closing:
    """How sessions are closed and deleted."""

    closes: CloseStore
    deletions: DeleteStore
    closer: Closer

    @classmethod
    def of(
        cls, database: Database, peers: Peers, transcripts: Transcripts, stopping: Stopping, taker: Taker
    ) -> Closing:
        """With a Stop for what still runs."""
        closes = CloseStore(database, transcripts.writer)
        deletions = DeleteStore(database, transcripts.writer)
        steps = CloseSteps(
            ViewStore(database),
            stopping.stops,
            peers.leases,
            peers.runners,
            peers.workspaces,
            taker,
            peers.clock,
            stopping=stopping.delivery.wake,
        )
        closer = Closer(closes, deletions, steps, peers.clock, changed=transcripts.watching.changed)
        return cls(closes, deletions, closer)

    @property
    def loops(self) -> tuple[Loop, ...]:
        """What has to run."""
        return (self.closer.run,)


@dataclass(frozen=True, slots=True)
class Questions:
    """What agents ask, and how the answers reach them."""

    interactions: InteractionStore
    delivery: AnswerDelivery
    expiry: InteractionExpiry

    @classmethod
    def of(cls, database: Database, peers: Peers, writer: Writer) -> Questions:
        """A question whose time is over is answered, too."""
        interactions = InteractionStore(database, writer)
        delivery = AnswerDelivery(AnswerStore(database), peers.leases, peers.runners, peers.clock)
        return cls(interactions, delivery, InteractionExpiry(interactions, delivery.wake))

    @property
    def loops(self) -> tuple[Loop, ...]:
        """What has to run."""
        return (self.delivery.run, partial(forever, "expiring questions", self.expiry.step))


@dataclass(frozen=True, slots=True)
class Queueing:
    """How turns start, and what becomes of those that wait for too long."""

    starts: StartStore
    expiry: QueueExpiry

    @classmethod
    def of(cls, settings: SessionSettings, database: Database, writer: Writer, stops: StopStore) -> Queueing:
        """Within the bounds of the settings."""
        bounds = QueueBounds(settings.queue_limit, timedelta(seconds=settings.queue_expiry))
        return cls(StartStore(writer, stops, bounds), QueueExpiry(QueueStore(database, writer)))

    @property
    def loops(self) -> tuple[Loop, ...]:
        """What has to run."""
        return (partial(forever, "expiring queued turns", self.expiry.step),)


@dataclass(frozen=True, slots=True)
class Parts:
    """All of them."""

    peers: Peers
    transcripts: Transcripts
    stopping: Stopping
    recovery: Recovery
    closing: Closing
    questions: Questions
    queueing: Queueing
    upkeep: tuple[Loop, ...]

    @classmethod
    def of(cls, settings: SessionSettings, database: Database) -> Parts:
        """Nothing runs yet."""
        peers = Peers.of(settings)
        transcripts = Transcripts.of(settings, database, peers)
        stopping = Stopping.of(settings, database, peers, transcripts.writer)
        recovery = Recovery.of(settings, database, peers, transcripts.journal)
        return cls(
            peers,
            transcripts,
            stopping,
            recovery,
            Closing.of(database, peers, transcripts, stopping, recovery.taker),
            Questions.of(database, peers, transcripts.writer),
            Queueing.of(settings, database, transcripts.writer, stopping.stops),
            _upkeep(settings, database),
        )

    @property
    def loops(self) -> tuple[Loop, ...]:
        """What has to run."""
        return (
            *self.peers.loops,
            *self.transcripts.loops,
            *self.stopping.loops,
            *self.closing.loops,
            *self.questions.loops,
            *self.queueing.loops,
            *self.recovery.loops,
            *self.upkeep,
        )


def _upkeep(settings: SessionSettings, database: Database) -> tuple[Loop, ...]:
    """What forgets rows that nobody needs any more."""
    requests = Upkeep(RequestStore(database).purge, settings.request_id_retention)
    commands = Upkeep(CommandStore(database).purge, settings.command_retention)
    return (
        partial(forever, "forgetting request ids", requests.step),
        partial(forever, "forgetting commands", commands.step),
    )
