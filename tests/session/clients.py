"""A client of the session service; refusals are raised as error kinds."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable
from typing import TYPE_CHECKING, Any, Self, TypeVar

import grpc
from moorage.common.v1 import content_pb2, turn_pb2
from moorage.session.v1 import session_pb2
from moorage.session.v1.session_pb2_grpc import SessionServiceStub

from services.common.project import PROJECT_KEY
from services.common.status import from_rpc_error

if TYPE_CHECKING:
    from moorage.session.v1.session_pb2_grpc import SessionServiceAsyncStub

T = TypeVar("T")
PATIENCE = 30.0


def text(value: str) -> content_pb2.ContentBlock:
    """A block of plain text."""
    return content_pb2.ContentBlock(text=content_pb2.TextContent(text=value))


class Client:
    """Calls of one project on one channel."""

    def __init__(
        self, channel: grpc.aio.Channel, project: str | None = None, patience: float = PATIENCE
    ) -> None:
        self._channel, self._project = channel, project
        self._stub: SessionServiceAsyncStub = SessionServiceStub(channel)
        self._options: dict[str, Any] = {"timeout": patience}
        if project is not None:
            self._options["metadata"] = ((PROJECT_KEY, project),)

    def with_patience(self, seconds: float) -> Self:
        """The same client, whose calls end after so long."""
        return type(self)(self._channel, self._project, seconds)

    def traced(self, traceparent: str) -> Self:
        """The same client, whose calls belong to a trace."""
        client = type(self)(self._channel, self._project)
        client._options["metadata"] = (*client._options.get("metadata", ()), ("traceparent", traceparent))
        return client

    async def create(self, **fields: Any) -> session_pb2.Session:
        fields.setdefault("approval_policy", turn_pb2.APPROVAL_POLICY_ALLOW)
        request = session_pb2.CreateSessionRequest(**fields)
        return (await _told(self._stub.CreateSession(request, **self._options))).session

    async def get(self, session_id: str) -> session_pb2.Session:
        request = session_pb2.GetSessionRequest(session_id=session_id)
        return (await _told(self._stub.GetSession(request, **self._options))).session

    async def list_sessions(self, **fields: Any) -> session_pb2.ListSessionsResponse:
        request = session_pb2.ListSessionsRequest(**fields)
        return await _told(self._stub.ListSessions(request, **self._options))

    async def update(self, session_id: str, *paths: str, **fields: Any) -> session_pb2.Session:
        request = session_pb2.UpdateSessionRequest(session_id=session_id, **fields)
        request.update_mask.paths.extend(paths)
        return (await _told(self._stub.UpdateSession(request, **self._options))).session

    async def close(self, session_id: str, **fields: Any) -> session_pb2.Session:
        request = session_pb2.CloseSessionRequest(session_id=session_id, **fields)
        return (await _told(self._stub.CloseSession(request, **self._options))).session

    async def delete(self, session_id: str, **fields: Any) -> session_pb2.DeleteSessionResponse:
        request = session_pb2.DeleteSessionRequest(session_id=session_id, **fields)
        return await _told(self._stub.DeleteSession(request, **self._options))

    async def start(self, session_id: str, prompt: str = "hello", **fields: Any) -> session_pb2.Turn:
        request = session_pb2.StartTurnRequest(session_id=session_id, prompt=[text(prompt)], **fields)
        return (await _told(self._stub.StartTurn(request, **self._options))).turn

    async def run(
        self, session_id: str, prompt: str = "hello", **fields: Any
    ) -> AsyncGenerator[session_pb2.RunTurnResponse, None]:
        request = session_pb2.RunTurnRequest(session_id=session_id, prompt=[text(prompt)], **fields)
        call = self._stub.RunTurn(request, **self._options)
        try:
            async for response in call:
                yield response
        except grpc.aio.AioRpcError as error:
            raise from_rpc_error(error) from error
        finally:
            call.cancel()

    async def get_turn(self, session_id: str, turn_id: str) -> session_pb2.Turn:
        request = session_pb2.GetTurnRequest(session_id=session_id, turn_id=turn_id)
        return (await _told(self._stub.GetTurn(request, **self._options))).turn

    async def list_turns(self, session_id: str, **fields: Any) -> session_pb2.ListTurnsResponse:
        request = session_pb2.ListTurnsRequest(session_id=session_id, **fields)
        return await _told(self._stub.ListTurns(request, **self._options))

    async def list_records(self, session_id: str, **fields: Any) -> session_pb2.ListRecordsResponse:
        request = session_pb2.ListRecordsRequest(session_id=session_id, **fields)
        return await _told(self._stub.ListRecords(request, **self._options))

    async def stop(self, session_id: str, turn_id: str = "", **fields: Any) -> session_pb2.StopTurnResponse:
        request = session_pb2.StopTurnRequest(session_id=session_id, expected_turn_id=turn_id, **fields)
        return await _told(self._stub.StopTurn(request, **self._options))

    async def get_command(self, session_id: str, command_id: str, **fields: Any) -> session_pb2.Command:
        request = session_pb2.GetCommandRequest(session_id=session_id, command_id=command_id, **fields)
        return (await _told(self._stub.GetCommand(request, **self._options))).command

    async def list_commands(self, session_id: str, **fields: Any) -> session_pb2.ListCommandsResponse:
        request = session_pb2.ListCommandsRequest(session_id=session_id, **fields)
        return await _told(self._stub.ListCommands(request, **self._options))

    async def answer(
        self, session_id: str, interaction_id: str, option_id: str, **fields: Any
    ) -> session_pb2.Interaction:
        request = session_pb2.AnswerInteractionRequest(
            session_id=session_id, interaction_id=interaction_id, option_id=option_id, **fields
        )
        return (await _told(self._stub.AnswerInteraction(request, **self._options))).interaction

    async def list_interactions(self, session_id: str, **fields: Any) -> session_pb2.ListInteractionsResponse:
        request = session_pb2.ListInteractionsRequest(session_id=session_id, **fields)
        return await _told(self._stub.ListInteractions(request, **self._options))


async def _told(call: Awaitable[T]) -> T:
    try:
        return await call
    except grpc.aio.AioRpcError as error:
        raise from_rpc_error(error) from error
