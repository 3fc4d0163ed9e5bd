"""JournalService: contract to domain and back."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any, Final

import grpc
from moorage.common.v1 import record_pb2, turn_pb2
from moorage.session.v1 import journal_pb2, session_pb2
from moorage.session.v1.journal_pb2_grpc import JournalServiceServicer

from services.common import logs
from services.common.errors import MoorageError, ShuttingDown
from services.session import bindings, convert, convert_interactions, convert_records
from services.session.journal.appending import Appender, Outcomes
from services.session.journal.calls import AppendCall, Begun, TurnCall
from services.session.servicers.writes import (
    append_call,
    begin_call,
    claimed_session,
    finish_call,
    history_call,
    open_call,
    progress_call,
)
from services.session.store.history import HistoryStore
from services.session.store.interactions import InteractionStore
from services.session.store.journal import JournalStore
from services.session.store.turns import TurnStore
from services.session.turns import EndReason

Context = grpc.aio.ServicerContext[Any, Any]

# Requests of one stream that are read before the first of them is answered.
_IN_FLIGHT: Final = 8


class JournalServicer(JournalServiceServicer):
    """Unpacks, calls the store, packs."""

    def __init__(
        self,
        journal: JournalStore,
        appender: Appender,
        turns: TurnStore,
        interactions: InteractionStore,
        histories: HistoryStore,
    ) -> None:
        """`appender` stores the records of all streams."""
        self._journal = journal
        self._appender = appender
        self._turns = turns
        self._interactions = interactions
        self._histories = histories
        self._streams: set[_Stream] = set()
        self._draining = False

    def drain(self) -> None:
        """End the streams of records as soon as what they brought is answered: runners never end them."""
        self._draining = True
        for stream in self._streams:
            stream.end()

    async def BeginTurn(
        self, request: journal_pb2.BeginTurnRequest, context: Context
    ) -> journal_pb2.BeginTurnResponse:
        """See the contract."""
        call = begin_call(request)
        _bound(call.turn)
        return _begun(await self._journal.begin_turn(call))

    async def ReportProgress(
        self, request: journal_pb2.ReportProgressRequest, context: Context
    ) -> journal_pb2.ReportProgressResponse:
        """See the contract."""
        call = progress_call(request)
        _bound(call.turn)
        phase = await self._journal.report_progress(call)
        return journal_pb2.ReportProgressResponse(phase=turn_pb2.TurnPhase.Value(f"TURN_PHASE_{phase}"))

    async def OpenInteraction(
        self, request: journal_pb2.OpenInteractionRequest, context: Context
    ) -> journal_pb2.OpenInteractionResponse:
        """See the contract."""
        call = open_call(request)
        turn = _bound(call.turn)
        seq = await self._journal.open_interaction(call)
        if not seq:
            cancelled = convert_interactions.cancelled(turn.key.session_id, turn.turn_id, request.interaction)
            return journal_pb2.OpenInteractionResponse(interaction=cancelled)
        stored = await self._interactions.get(turn.key, call.question.interaction_id)
        return journal_pb2.OpenInteractionResponse(
            interaction=convert_interactions.interaction(stored), seq=seq
        )

    async def ListHistory(
        self, request: journal_pb2.ListHistoryRequest, context: Context
    ) -> journal_pb2.ListHistoryResponse:
        """See the contract."""
        call = history_call(request)
        logs.bind(project=call.key.project, session=call.key.session_id)
        history = await self._histories.read(call)
        return journal_pb2.ListHistoryResponse(
            records=map(convert_records.record, history.records()), truncated=history.truncated
        )

    async def FinishTurn(
        self, request: journal_pb2.FinishTurnRequest, context: Context
    ) -> journal_pb2.FinishTurnResponse:
        """See the contract."""
        call = finish_call(request)
        turn = _bound(call.turn)
        await self._journal.finish_turn(call)
        stored = await self._turns.get(*turn.key, turn.turn_id)
        return journal_pb2.FinishTurnResponse(turn=convert.turn(stored))

    async def ClaimSession(
        self, request: journal_pb2.ClaimSessionRequest, context: Context
    ) -> journal_pb2.ClaimSessionResponse:
        """See the contract."""
        key = claimed_session(request)
        logs.bind(project=key.project, session=key.session_id)
        await self._journal.show(key, request.grant, EndReason.TAKEN_OVER)
        return journal_pb2.ClaimSessionResponse()

    async def AppendRecords(
        self, request_iterator: AsyncIterator[journal_pb2.AppendRecordsRequest], context: Context
    ) -> AsyncIterator[journal_pb2.AppendRecordsResponse]:
        """See the contract; requests are read on while the transaction of others runs."""
        if self._draining:
            raise ShuttingDown
        stream = _Stream(request_iterator, self._appender)
        self._streams.add(stream)
        reader = asyncio.create_task(stream.read())
        try:
            while (submitted := await stream.submitted.get()) is not None:
                yield await submitted.response()
                stream.room.release()
            if stream.ended:
                raise ShuttingDown
            await reader
        finally:
            self._streams.discard(stream)
            reader.cancel()
            await asyncio.wait({reader})


class _Stream:
    """Reads the requests of one stream ahead of their answers, but only so many."""

    def __init__(self, requests: AsyncIterator[journal_pb2.AppendRecordsRequest], appender: Appender) -> None:
        self._requests = requests
        self._appender = appender
        self.submitted: asyncio.Queue[_Submitted | None] = asyncio.Queue()
        self.room = asyncio.Semaphore(_IN_FLIGHT)
        self.ended = False

    def end(self) -> None:
        """Take no more requests; what is read from here on is not answered."""
        self.ended = True
        self.submitted.put_nowait(None)

    async def read(self) -> None:
        """Submit each request; None follows the last one."""
        try:
            async for request in self._requests:
                await self.room.acquire()
                items = [_checked(append) for append in request.appends]
                calls = [item for item in items if isinstance(item, AppendCall)]
                outcomes = await self._appender.submit(calls)
                self.submitted.put_nowait(_Submitted(request, items, outcomes))
        finally:
            self.submitted.put_nowait(None)


@dataclass(frozen=True, slots=True)
class _Submitted:
    """A request whose records wait to be stored, those of them that can be."""

    request: journal_pb2.AppendRecordsRequest
    items: list[AppendCall | MoorageError]
    outcomes: asyncio.Future[Outcomes | MoorageError]

    async def response(self) -> journal_pb2.AppendRecordsResponse:
        """A result for each item; raises what struck them all."""
        outcomes = await self.outcomes
        if isinstance(outcomes, MoorageError):
            raise outcomes
        stored = iter(outcomes)
        results = (item if isinstance(item, MoorageError) else next(stored) for item in self.items)
        return journal_pb2.AppendRecordsResponse(results=map(_result, self.request.appends, results))


def _bound(call: TurnCall) -> TurnCall:
    """Name the turn in the logs of this call."""
    logs.bind(project=call.key.project, session=call.key.session_id, turn=call.turn_id)
    return call


def _checked(append: journal_pb2.RecordAppend) -> AppendCall | MoorageError:
    try:
        return append_call(append)
    except MoorageError as refusal:
        return refusal


def _result(append: journal_pb2.RecordAppend, outcome: int | MoorageError) -> journal_pb2.RecordAppendResult:
    result = journal_pb2.RecordAppendResult(
        project=append.project,
        session_id=append.session_id,
        turn_id=append.turn_id,
        turn_seq=append.turn_seq,
    )
    if isinstance(outcome, MoorageError):
        result.error.reason = outcome.reason
        result.error.message = str(outcome)
        result.error.metadata.update(outcome.metadata)
    else:
        result.seq = outcome
    return result


def _begun(begun: Begun) -> journal_pb2.BeginTurnResponse:
    session, turn = begun.session, begun.turn
    agent = session_pb2.AgentSpec.FromString(session.agent)
    agent.profile = session.profile
    return journal_pb2.BeginTurnResponse(
        prompt=record_pb2.UserMessage.FromString(turn.prompt).content,
        agent=agent,
        approval_policy=begun.metadata.approval_policy,
        limits=begun.metadata.limits,
        binding=bindings.message(bindings.load(session.binding_kind, session.binding)),
        workspace_id=session.workspace_id,
        previous_turn_id=turn.previous_turn_id,
        native_session_id=begun.native_session_id,
        traceparent=turn.traceparent,
        interaction_timeout=convert.duration(begun.interaction_timeout),
        setup_untold=begun.setup_untold,
    )
