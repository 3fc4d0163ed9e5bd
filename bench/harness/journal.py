"""A holder that writes records of one turn to the journal, and the same bytes in a bare table."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

import asyncpg
import grpc
from google.protobuf.duration_pb2 import Duration
from moorage.common.v1 import content_pb2, record_pb2
from moorage.owner.v1 import lease_pb2
from moorage.owner.v1.lease_pb2_grpc import LeaseServiceStub
from moorage.session.v1 import journal_pb2, session_pb2
from moorage.session.v1.journal_pb2_grpc import JournalServiceStub
from moorage.session.v1.session_pb2_grpc import SessionServiceStub

if TYPE_CHECKING:
    from moorage.owner.v1.lease_pb2_grpc import LeaseServiceAsyncStub
    from moorage.session.v1.journal_pb2_grpc import JournalServiceAsyncStub
    from moorage.session.v1.session_pb2_grpc import SessionServiceAsyncStub

_TURN, _ATTEMPT = "t1", "a1"
_TTL = 3600
TEXT = "a piece of an answer, as agents give it"


class Appends:
    """The turn's stream of records."""

    def __init__(self, call: Any, names: dict[str, Any]) -> None:
        """The turn is begun; nothing has been said."""
        self._call = call
        self._names = names
        self._said = 0

    async def append(self, count: int) -> int:
        """So many records in one request, acknowledged; how many."""
        first = self._said + 1
        items = [
            journal_pb2.RecordAppend(turn_seq=turn_seq, body=body(), **self._names)
            for turn_seq in range(first, first + count)
        ]
        await self._call.write(journal_pb2.AppendRecordsRequest(appends=items))
        response = await self._call.read()
        if any(result.WhichOneof("result") != "seq" for result in response.results):
            raise RuntimeError(f"a record was refused: {response}")
        self._said += count
        return count


@contextlib.asynccontextmanager
async def appends(
    owner: grpc.aio.Channel, session: grpc.aio.Channel, journal: grpc.aio.Channel, name: str = "appends"
) -> AsyncIterator[Appends]:
    """A turn of the session `name`, begun by this process, which holds its lease as a runner would."""
    sessions: SessionServiceAsyncStub = SessionServiceStub(session)
    await sessions.CreateSession(session_pb2.CreateSessionRequest(session_id=name))
    leases: LeaseServiceAsyncStub = LeaseServiceStub(owner)
    lease = await leases.AcquireLease(
        lease_pb2.AcquireLeaseRequest(
            resource=f"projects/default/sessions/{name}",
            holder="bench/1",
            ttl=Duration(seconds=_TTL),
            labels={"role": "runner"},
        )
    )
    prompt = content_pb2.ContentBlock(text=content_pb2.TextContent(text="go"))
    await sessions.StartTurn(session_pb2.StartTurnRequest(session_id=name, turn_id=_TURN, prompt=[prompt]))
    names: dict[str, Any] = {
        "grant": lease.grant,
        "project": "default",
        "session_id": name,
        "turn_id": _TURN,
        "attempt_id": _ATTEMPT,
    }
    stub: JournalServiceAsyncStub = JournalServiceStub(journal)
    await stub.BeginTurn(journal_pb2.BeginTurnRequest(**names))
    call = stub.AppendRecords()
    try:
        yield Appends(call, names)
    finally:
        call.cancel()


class BareTable:
    """Inserts what the journal would of one session, without any of its checks."""

    def __init__(self, connection: Any, name: str) -> None:
        """The table exists."""
        self._connection = connection
        self._name = name
        self._seq = 0

    async def insert(self, count: int) -> int:
        """So many rows in one statement, committed; how many."""
        record = body().SerializeToString()
        digest = hashlib.sha256(record).digest()
        seqs = range(self._seq + 1, self._seq + 1 + count)
        await self._connection.execute(
            "INSERT INTO bench_records SELECT $1, * FROM unnest($2::bigint[], $3::bytea[], $4::bytea[])",
            self._name,
            list(seqs),
            [record] * count,
            [digest] * count,
        )
        self._seq += count
        return count


@contextlib.asynccontextmanager
async def bare_table(database_url: str, name: str = "appends") -> AsyncIterator[BareTable]:
    """A table beside those of the services, reached by a connection of its own for each name."""
    connection = await asyncpg.connect(database_url)
    try:
        await connection.execute(
            """
            CREATE TABLE IF NOT EXISTS bench_records (
                session_id text, seq bigint, body bytea, body_hash bytea, PRIMARY KEY (session_id, seq)
            )
            """
        )
        yield BareTable(connection, name)
    finally:
        await connection.close()


def body() -> record_pb2.RecordBody:
    """A piece of text."""
    content = content_pb2.ContentBlock(text=content_pb2.TextContent(text=TEXT))
    return record_pb2.RecordBody(agent_message=record_pb2.AgentMessage(message_id="m", content=content))
