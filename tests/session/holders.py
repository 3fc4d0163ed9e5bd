"""A holder of a session's lease that begins and ends turns, through the real owner and journal."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable
from typing import TYPE_CHECKING, Any, Self, TypeVar

import grpc
from google.protobuf.duration_pb2 import Duration
from moorage.common.v1 import content_pb2, record_pb2, turn_pb2
from moorage.common.v1.grant_pb2 import Grant
from moorage.owner.v1 import lease_pb2
from moorage.owner.v1.lease_pb2_grpc import LeaseServiceStub
from moorage.session.v1 import journal_pb2, session_pb2
from moorage.session.v1.journal_pb2_grpc import JournalServiceStub

from services.common.status import from_rpc_error
from tests.session.desks import question

if TYPE_CHECKING:
    from moorage.owner.v1.lease_pb2_grpc import LeaseServiceAsyncStub
    from moorage.session.v1.journal_pb2_grpc import JournalServiceAsyncStub

T = TypeVar("T")


class Holder:
    """Holds the lease of one session of the project `default`."""

    def __init__(self, journal: grpc.aio.Channel, session_id: str, grant: Grant) -> None:
        self._journal: JournalServiceAsyncStub = JournalServiceStub(journal)
        self._names: dict[str, Any] = {"grant": grant, "project": "default", "session_id": session_id}

    @classmethod
    async def acquire(cls, owner: grpc.aio.Channel, journal: grpc.aio.Channel, session_id: str) -> Self:
        """Take the lease as a runner does."""
        request = lease_pb2.AcquireLeaseRequest(
            resource=f"projects/default/sessions/{session_id}",
            holder="runner/1",
            ttl=Duration(seconds=60),
            labels={"role": "runner"},
        )
        stub: LeaseServiceAsyncStub = LeaseServiceStub(owner)
        return cls(journal, session_id, (await _told(stub.AcquireLease(request))).grant)

    async def begin(self, turn_id: str) -> journal_pb2.BeginTurnResponse:
        request = journal_pb2.BeginTurnRequest(turn_id=turn_id, attempt_id=f"a_{turn_id}", **self._names)
        return await _told(self._journal.BeginTurn(request))

    async def say(self, turn_id: str, *texts: str, first: int = 1) -> None:
        """Append a message of the agent for each text; `first` is the turn_seq of the first of them."""
        request = journal_pb2.AppendRecordsRequest(
            appends=[
                journal_pb2.RecordAppend(
                    turn_id=turn_id,
                    attempt_id=f"a_{turn_id}",
                    turn_seq=turn_seq,
                    body=_said(text),
                    **self._names,
                )
                for turn_seq, text in enumerate(texts, first)
            ]
        )

        async def requests() -> AsyncIterator[journal_pb2.AppendRecordsRequest]:
            yield request

        async for response in self._journal.AppendRecords(requests()):
            assert [result.WhichOneof("result") for result in response.results] == ["seq"] * len(texts)

    async def ask(
        self, turn_id: str, turn_seq: int, interaction_id: str = "q1"
    ) -> journal_pb2.OpenInteractionResponse:
        """Ask whether a tool call may run."""
        request = journal_pb2.OpenInteractionRequest(
            turn_id=turn_id,
            attempt_id=f"a_{turn_id}",
            turn_seq=turn_seq,
            interaction=question(interaction_id),
            **self._names,
        )
        return await _told(self._journal.OpenInteraction(request))

    async def complete(self, turn_id: str, last_turn_seq: int = 0) -> session_pb2.Turn:
        return await self._finish(
            turn_id,
            last_turn_seq=last_turn_seq,
            state=turn_pb2.TURN_STATE_COMPLETED,
            end_reason=turn_pb2.END_REASON_AGENT_ENDED,
            runtime_after=turn_pb2.RUNTIME_AFTER_ENDED,
        )

    async def stopped(self, turn_id: str) -> session_pb2.Turn:
        """The agent confirmed a cancel."""
        return await self._finish(
            turn_id,
            state=turn_pb2.TURN_STATE_STOPPED,
            end_reason=turn_pb2.END_REASON_USER_STOP,
            stop_method=turn_pb2.STOP_METHOD_AGENT_CONFIRMED,
            runtime_after=turn_pb2.RUNTIME_AFTER_WARM,
        )

    async def _finish(self, turn_id: str, **fields: Any) -> session_pb2.Turn:
        request = journal_pb2.FinishTurnRequest(
            turn_id=turn_id, attempt_id=f"a_{turn_id}", **fields, **self._names
        )
        return (await _told(self._journal.FinishTurn(request))).turn


def _said(text: str) -> record_pb2.RecordBody:
    content = content_pb2.ContentBlock(text=content_pb2.TextContent(text=text))
    return record_pb2.RecordBody(agent_message=record_pb2.AgentMessage(message_id="m", content=content))


async def _told(call: Awaitable[T]) -> T:
    try:
        return await call
    except grpc.aio.AioRpcError as error:
        raise from_rpc_error(error) from error
