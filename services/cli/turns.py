"""Runs a turn over a connection that may be cut: the same request id attaches again."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator

import grpc
from moorage.common.v1 import content_pb2
from moorage.session.v1 import session_pb2

from services.cli.connection import Connection

_ATTEMPTS = 6
_FIRST_WAIT = 0.1
_LONGEST_WAIT = 5.0


class Cut(Exception):
    """The connection was lost and could not be made again; the turn goes on without us."""

    def __init__(self, stream: TurnStream, error: grpc.aio.AioRpcError) -> None:
        super().__init__(f"lost the connection to the session service: {error.details()}")
        self.turn_id = stream.turn_id
        self.admitted = stream.attached


class TurnStream:
    """The events of one turn, in order and once each, whatever happens to the connection."""

    def __init__(self, connection: Connection, session_id: str, prompt: str) -> None:
        self._connection = connection
        self._request = session_pb2.RunTurnRequest(
            session_id=session_id,
            turn_id=f"turn-{uuid.uuid4().hex}",
            request_id=uuid.uuid4().hex,
            prompt=[content_pb2.ContentBlock(text=content_pb2.TextContent(text=prompt))],
        )
        self.attached = False
        self.ended: session_pb2.Turn | None = None

    @property
    def turn_id(self) -> str:
        """The turn's name, known before it is sent."""
        return self._request.turn_id

    async def events(self) -> AsyncIterator[session_pb2.RunTurnResponse]:
        """Yield `admitted` once, records, and `ended` last; raise Cut when the service stays away."""
        failures = 0
        while self.ended is None:
            try:
                async for event in self._stream():
                    failures = 0
                    yield event
            except grpc.aio.AioRpcError as error:
                if error.code() is not grpc.StatusCode.UNAVAILABLE:
                    raise
                failures += 1
                if failures >= _ATTEMPTS:
                    raise Cut(self, error) from error
                await asyncio.sleep(min(_LONGEST_WAIT, _FIRST_WAIT * 2**failures))

    async def _stream(self) -> AsyncIterator[session_pb2.RunTurnResponse]:
        call = self._connection.sessions.RunTurn(self._request, metadata=self._connection.metadata)
        async for event in call:
            kind = event.WhichOneof("event")
            if kind == "record":
                self._request.after_seq = event.record.seq
            elif kind == "ended":
                self.ended = event.ended
            if kind != "admitted" or not self.attached:
                self.attached = self.attached or kind == "admitted"
                yield event
