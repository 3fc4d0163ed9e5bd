"""The journal on a real server and database, with grants that the test signs itself, and its holders."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import grpc
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from moorage.common.v1 import content_pb2, record_pb2, turn_pb2
from moorage.common.v1.errors_pb2 import ErrorReason
from moorage.common.v1.grant_pb2 import Grant
from moorage.session.v1 import journal_pb2
from moorage.session.v1.journal_pb2_grpc import JournalServiceStub, add_JournalServiceServicer_to_server

from services.common.channels import open_channel
from services.common.clock import Clock, SystemClock
from services.common.database import Database
from services.common.serving import ServiceServer
from services.common.settings import ServiceSettings
from services.common.status import from_rpc_error
from services.fencing.grants import GrantClaims, GrantSigner
from services.fencing.keys import KeySource
from services.fencing.verifier import GrantVerifier
from services.session.journal.appending import Appender
from services.session.journal.rules import SessionKey
from services.session.limits import LimitDefaults
from services.session.records import Record
from services.session.requests import RequestKey
from services.session.servicers.journal import JournalServicer
from services.session.store.fence import Fence
from services.session.store.history import HistoryStore
from services.session.store.interactions import InteractionStore
from services.session.store.journal import JournalStore
from services.session.store.records import RecordStore
from services.session.store.sessions import SessionStore
from services.session.store.turns import TurnStore
from services.session.store.writing import Writer
from services.session.turns import IfBusy, Turn
from tests.session import samples
from tests.session.starts import Starter

if TYPE_CHECKING:
    from moorage.session.v1.journal_pb2_grpc import JournalServiceAsyncStub

T = TypeVar("T")

LIMITS = LimitDefaults(max_duration=21600.0, max_silence=900.0)
PREPARING = 900.0
MINUTE = 60.0


class OwnKeys:
    """Signs grants, and knows the key that verifies them."""

    def __init__(self, kid: str = "test_1") -> None:
        self.signer = GrantSigner(kid, Ed25519PrivateKey.generate())

    async def get(self, kid: str) -> Ed25519PublicKey | None:
        if kid != self.signer.kid:
            return None
        return Ed25519PublicKey.from_public_bytes(self.signer.public_key)


@dataclass(eq=False)
class Desk:
    """One replica's journal, and what tests read and make beside it.

    It knows the test's own keys, or those of an owner.
    """

    database: Database
    clock: Clock
    keys: OwnKeys = field(default_factory=OwnKeys)
    owner_keys: KeySource | None = None
    interaction_timeout: float = 3600.0
    changed: list[SessionKey] = field(default_factory=list)
    listeners: list[Callable[[str, str], None]] = field(default_factory=list)
    channel: grpc.aio.Channel = field(init=False)
    appending: asyncio.Task[None] = field(init=False)

    def __post_init__(self) -> None:
        self.writer = Writer(self.database, self._on_changed)
        self.fence = Fence(GrantVerifier(self.owner_keys or self.keys, self.clock))
        self.journal = JournalStore(
            self.writer,
            self.fence,
            limits=LIMITS,
            preparing_timeout=PREPARING,
            interaction_timeout=self.interaction_timeout,
        )
        self.interactions = InteractionStore(self.database, self.writer)
        self.appender = Appender(self.journal)
        self.turns = TurnStore(self.database)
        self.starter = Starter(self.database, self.writer)
        self.records = RecordStore(self.database)

    def _on_changed(self, project: str, session_id: str) -> None:
        self.changed.append(SessionKey(project, session_id))
        for listener in self.listeners:
            listener(project, session_id)

    @contextlib.asynccontextmanager
    async def serving(self) -> AsyncIterator[Desk]:
        """Serve the journal on a free port."""
        server = ServiceServer(ServiceSettings(listen="127.0.0.1:0", shutdown_grace=0.2), name="session")
        histories = HistoryStore(self.database, self.fence)
        self.servicer = JournalServicer(self.journal, self.appender, self.turns, self.interactions, histories)
        server.add(
            partial(add_JournalServiceServicer_to_server, self.servicer), "moorage.session.v1.JournalService"
        )
        await server.start()
        self.appending = asyncio.create_task(self.appender.run())
        try:
            async with open_channel(server.endpoint) as self.channel:
                yield self
        finally:
            self.appending.cancel()
            await asyncio.wait({self.appending})
            await server.stop()

    async def session(self, session_id: str = "s1", *, project: str = "default") -> None:
        """Store a session."""
        key = RequestKey(project, "", "CreateSession", "", b"")
        await SessionStore(self.database).create(
            samples.new_session(session_id, project=project), key, by=samples.LATER
        )

    async def turn(
        self,
        turn_id: str = "t1",
        session_id: str = "s1",
        *,
        project: str = "default",
        if_busy: IfBusy = IfBusy.REJECT,
        request_id: str = "",
    ) -> Turn:
        """Start a turn; as it stands then."""
        key = RequestKey(project, session_id, "StartTurn", request_id, f"{turn_id} {if_busy}".encode())
        draft = replace(samples.new_turn(turn_id, session_id, project=project), if_busy=if_busy)
        return await self.starter.start(draft, key)

    async def read_turn(
        self, turn_id: str = "t1", session_id: str = "s1", *, project: str = "default"
    ) -> Turn:
        """A turn as it is stored."""
        return await self.turns.get(project, session_id, turn_id)

    async def transcript(self, session_id: str = "s1", *, project: str = "default") -> list[Record]:
        """All records; their seqs must have no gap."""
        found: list[Record] = []
        while True:
            after_seq = found[-1].seq if found else 0
            page = await self.records.page(project, session_id, after_seq, limit=1000)
            if not page.records:
                assert [record.seq for record in found] == list(range(1, page.head_seq + 1))
                return found
            found.extend(page.records)

    async def token(self, session_id: str = "s1", *, project: str = "default") -> int:
        """The session's stored token."""
        async with self.database.connection() as connection:
            token: int = await connection.fetchval(
                "SELECT token FROM session.sessions WHERE project = $1 AND session_id = $2",
                project,
                session_id,
            )
        return token

    def holder(self, session_id: str = "s1", **changes: Any) -> Holder:
        """Somebody with a grant for a session, by default with token 1."""
        return replace(Holder(self, SessionKey("default", session_id)), **changes)

    async def begun(self, session_id: str = "s1", turn_id: str = "t1", **changes: Any) -> Holder:
        """A new session with a begun turn, and the turn's holder."""
        await self.session(session_id)
        await self.turn(turn_id, session_id)
        holder = self.holder(session_id, turn_id=turn_id, **changes)
        await holder.begin()
        return holder


@dataclass(frozen=True)
class Holder:
    """A holder that works on one turn; refusals are raised as error kinds."""

    desk: Desk
    key: SessionKey
    token: int = 1
    name: str = "runner/1"
    role: str = "runner"
    turn_id: str = "t1"
    attempt_id: str = "a1"
    lasts: float = MINUTE
    shown: Grant | None = None

    @property
    def grant(self) -> Grant:
        """What it shows: by default its own good grant."""
        if self.shown is not None:
            return self.shown
        return self.desk.keys.signer.sign(self.claims())

    def claims(self, **changes: Any) -> GrantClaims:
        """What its grant says."""
        expire_time = self.desk.clock.now() + timedelta(seconds=self.lasts)
        claims = GrantClaims(self.key.resource, self.name, self.token, expire_time, self.role)
        return replace(claims, **changes)

    @property
    def names(self) -> dict[str, Any]:
        """The fields that every write has."""
        return {
            "grant": self.grant,
            "project": self.key.project,
            "session_id": self.key.session_id,
            "turn_id": self.turn_id,
            "attempt_id": self.attempt_id,
        }

    @property
    def stub(self) -> JournalServiceAsyncStub:
        stub: JournalServiceAsyncStub = JournalServiceStub(self.desk.channel)
        return stub

    async def begin(self) -> journal_pb2.BeginTurnResponse:
        return await told(self.stub.BeginTurn(journal_pb2.BeginTurnRequest(**self.names)))

    async def report(self, **fields: Any) -> journal_pb2.ReportProgressResponse:
        request = journal_pb2.ReportProgressRequest(**self.names, **fields)
        return await told(self.stub.ReportProgress(request))

    async def finish(self, **fields: Any) -> journal_pb2.FinishTurnResponse:
        fields.setdefault("state", turn_pb2.TURN_STATE_COMPLETED)
        fields.setdefault("end_reason", turn_pb2.END_REASON_AGENT_ENDED)
        return await told(self.stub.FinishTurn(journal_pb2.FinishTurnRequest(**self.names, **fields)))

    async def ask(
        self, turn_seq: int, interaction_id: str = "q1", **fields: Any
    ) -> journal_pb2.OpenInteractionResponse:
        """Ask whether a tool call may run."""
        request = journal_pb2.OpenInteractionRequest(
            **self.names, turn_seq=turn_seq, interaction=question(interaction_id, **fields)
        )
        return await told(self.stub.OpenInteraction(request))

    async def append(self, *numbers: int, prefix: str = "text") -> list[int | str]:
        """Append pieces of text in one request: for each its seq, or the reason why not."""
        return await append(self.desk, [self.item(number, f"{prefix} {number}") for number in numbers])

    def item(self, turn_seq: int, text: str = "", **fields: Any) -> journal_pb2.RecordAppend:
        fields.setdefault("body", message(text))
        return journal_pb2.RecordAppend(**self.names, turn_seq=turn_seq, **fields)


def message(text: str) -> record_pb2.RecordBody:
    """A piece of an agent's answer."""
    block = content_pb2.ContentBlock(text=content_pb2.TextContent(text=text))
    return record_pb2.RecordBody(agent_message=record_pb2.AgentMessage(message_id="m1", content=block))


def question(interaction_id: str, **fields: Any) -> record_pb2.InteractionOpened:
    """Whether a tool call may run: `yes` or `no`."""
    values: dict[str, Any] = {
        "kind": record_pb2.INTERACTION_KIND_PERMISSION,
        "title": "Run make?",
        "tool_call_id": "call_1",
        "options": [
            record_pb2.InteractionOption(option_id="yes", name="Run it", kind="allow_once"),
            record_pb2.InteractionOption(option_id="no", name="Do not", kind="reject_once"),
        ],
    }
    return record_pb2.InteractionOpened(interaction_id=interaction_id, **{**values, **fields})


async def append(desk: Desk, items: Iterable[journal_pb2.RecordAppend]) -> list[int | str]:
    """Append records in one request on a stream of its own."""
    return [outcome(result) for result in await append_results(desk, items)]


async def append_results(
    desk: Desk, items: Iterable[journal_pb2.RecordAppend]
) -> list[journal_pb2.RecordAppendResult]:
    """The same, with whole results."""
    stub: JournalServiceAsyncStub = JournalServiceStub(desk.channel)
    call = stub.AppendRecords()
    await call.write(journal_pb2.AppendRecordsRequest(appends=items))
    await call.done_writing()
    responses = [response async for response in call]
    assert len(responses) == 1
    return list(responses[0].results)


def outcome(result: journal_pb2.RecordAppendResult) -> int | str:
    """The seq, or the name of the reason."""
    if result.WhichOneof("result") == "seq":
        return result.seq
    return reason_name(result.error.reason)


def reason_name(reason: Any) -> str:
    """As ErrorInfo carries it."""
    return ErrorReason.Name(reason).removeprefix("ERROR_REASON_")


async def told(call: Awaitable[T]) -> T:
    """The answer; a refusal as the error that it was."""
    try:
        return await call
    except grpc.aio.AioRpcError as error:
        raise from_rpc_error(error) from error


def system_desk(database: Database) -> Desk:
    """A desk on the machine's clock."""
    return Desk(database, SystemClock())
