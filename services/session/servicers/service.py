"""SessionService as gRPC calls it: unpack the call, hand it to the methods, nothing else."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import grpc
from moorage.session.v1 import session_pb2
from moorage.session.v1.session_pb2_grpc import SessionServiceServicer

from services.common.project import project_of
from services.session.servicers.closing import CloseMethods
from services.session.servicers.commands import CommandMethods
from services.session.servicers.interactions import InteractionMethods
from services.session.servicers.sessions import SessionMethods
from services.session.servicers.standing import StandingMethods
from services.session.servicers.turns import TurnMethods
from services.session.servicers.watch import WatchMethods

Context = grpc.aio.ServicerContext[Any, Any]


class SessionServicer(SessionServiceServicer):
    """One line per RPC; the methods know nothing of gRPC."""

    def __init__(
        self,
        sessions: SessionMethods,
        closing: CloseMethods,
        turns: TurnMethods,
        commands: CommandMethods,
        interactions: InteractionMethods,
        standing: StandingMethods,
        watch: WatchMethods,
    ) -> None:
        """The methods by noun."""
        self._sessions = sessions
        self._closing = closing
        self._turns = turns
        self._commands = commands
        self._interactions = interactions
        self._standing = standing
        self._watch = watch

    async def CreateSession(
        self, request: session_pb2.CreateSessionRequest, context: Context
    ) -> session_pb2.CreateSessionResponse:
        """See the contract."""
        return await self._sessions.create(project_of(context), request, context.time_remaining())

    async def GetSession(
        self, request: session_pb2.GetSessionRequest, context: Context
    ) -> session_pb2.GetSessionResponse:
        """See the contract."""
        return await self._sessions.get(project_of(context), request)

    async def ListSessions(
        self, request: session_pb2.ListSessionsRequest, context: Context
    ) -> session_pb2.ListSessionsResponse:
        """See the contract."""
        return await self._sessions.list_newest(project_of(context), request)

    async def UpdateSession(
        self, request: session_pb2.UpdateSessionRequest, context: Context
    ) -> session_pb2.UpdateSessionResponse:
        """See the contract."""
        return await self._sessions.update(project_of(context), request)

    async def CloseSession(
        self, request: session_pb2.CloseSessionRequest, context: Context
    ) -> session_pb2.CloseSessionResponse:
        """See the contract."""
        return await self._closing.close(project_of(context), request, context.time_remaining())

    async def DeleteSession(
        self, request: session_pb2.DeleteSessionRequest, context: Context
    ) -> session_pb2.DeleteSessionResponse:
        """See the contract."""
        return await self._closing.delete(project_of(context), request, context.time_remaining())

    async def StartTurn(
        self, request: session_pb2.StartTurnRequest, context: Context
    ) -> session_pb2.StartTurnResponse:
        """See the contract."""
        return await self._turns.start(project_of(context), request)

    def RunTurn(
        self, request: session_pb2.RunTurnRequest, context: Context
    ) -> AsyncIterator[session_pb2.RunTurnResponse]:
        """See the contract."""
        return self._turns.run(project_of(context), request)

    async def GetTurn(
        self, request: session_pb2.GetTurnRequest, context: Context
    ) -> session_pb2.GetTurnResponse:
        """See the contract."""
        return await self._turns.get(project_of(context), request)

    async def ListTurns(
        self, request: session_pb2.ListTurnsRequest, context: Context
    ) -> session_pb2.ListTurnsResponse:
        """See the contract."""
        return await self._turns.list_newest(project_of(context), request)

    async def StopTurn(
        self, request: session_pb2.StopTurnRequest, context: Context
    ) -> session_pb2.StopTurnResponse:
        """See the contract."""
        return await self._commands.stop(project_of(context), request)

    async def GetCommand(
        self, request: session_pb2.GetCommandRequest, context: Context
    ) -> session_pb2.GetCommandResponse:
        """See the contract."""
        return await self._commands.get(project_of(context), request, context.time_remaining())

    async def ListCommands(
        self, request: session_pb2.ListCommandsRequest, context: Context
    ) -> session_pb2.ListCommandsResponse:
        """See the contract."""
        return await self._commands.list_newest(project_of(context), request)

    async def ListInteractions(
        self, request: session_pb2.ListInteractionsRequest, context: Context
    ) -> session_pb2.ListInteractionsResponse:
        """See the contract."""
        return await self._interactions.list_oldest(project_of(context), request)

    async def AnswerInteraction(
        self, request: session_pb2.AnswerInteractionRequest, context: Context
    ) -> session_pb2.AnswerInteractionResponse:
        """See the contract."""
        return await self._interactions.answer(project_of(context), request)

    async def ListStandingAnswers(
        self, request: session_pb2.ListStandingAnswersRequest, context: Context
    ) -> session_pb2.ListStandingAnswersResponse:
        """See the contract."""
        return await self._standing.list_oldest(project_of(context), request)

    async def RevokeStandingAnswer(
        self, request: session_pb2.RevokeStandingAnswerRequest, context: Context
    ) -> session_pb2.RevokeStandingAnswerResponse:
        """See the contract."""
        return await self._standing.revoke(project_of(context), request)

    async def ListRecords(
        self, request: session_pb2.ListRecordsRequest, context: Context
    ) -> session_pb2.ListRecordsResponse:
        """See the contract."""
        return await self._watch.list_records(project_of(context), request)

    def WatchSession(
        self, request: session_pb2.WatchSessionRequest, context: Context
    ) -> AsyncIterator[session_pb2.WatchSessionResponse]:
        """See the contract."""
        return self._watch.watch_session(project_of(context), request)
