"""Runs a turn over a connection that may be cut: the same request id attaches again."""

from __future__ import annotations

import uuid
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import TYPE_CHECKING

from moorage.common.v1 import content_pb2
from moorage.session.v1 import session_pb2

from services.cli.connection import Connection
from services.cli.patience import Patience, resumed

if TYPE_CHECKING:
    import grpc

    TurnCall = grpc.aio.UnaryStreamCall[session_pb2.RunTurnRequest, session_pb2.RunTurnResponse]


class TurnStream:
    """The events of one turn, in order and once each, whatever happens to the connection."""

    def __init__(
        self,
        connection: Connection,
        session_id: str,
        prompt: str,
        patience: Patience,
        if_busy: session_pb2.IfBusy.ValueType = session_pb2.IF_BUSY_REJECT,
    ) -> None:
        """Nothing is sent before `events` is read."""
        self._connection = connection
        self._patience = patience
        self._request = session_pb2.RunTurnRequest(
            session_id=session_id,
            turn_id=f"turn_{uuid.uuid4().hex}",
            request_id=uuid.uuid4().hex,
            prompt=[content_pb2.ContentBlock(text=content_pb2.TextContent(text=prompt))],
            if_busy=if_busy,
        )
        self.admitted = False

    @property
    def turn_id(self) -> str:
        """The turn's name, known before it is sent."""
        return self._request.turn_id

    @property
    def last_seq(self) -> int:
        """The number of the last record that came; 0 before."""
        return self._request.after_seq

    async def events(self) -> AsyncGenerator[session_pb2.RunTurnResponse, None]:
        """`admitted`, the records, and `ended` last. Raises Cut when the service stays away."""
        async with aclosing(resumed(self._open, self._patience)) as events:
            async for event in events:
                kind = event.WhichOneof("event")
                if kind == "record":
                    self._request.after_seq = event.record.seq
                if self._is_new(kind):
                    yield event
                if kind == "ended":
                    return

    def _open(self) -> TurnCall:
        return self._connection.sessions.RunTurn(self._request, metadata=self._connection.metadata)

    def _is_new(self, kind: str | None) -> bool:
        """Every attachment begins with `admitted`, and heartbeats tell nothing here."""
        if kind != "admitted":
            return kind != "heartbeat"
        again, self.admitted = self.admitted, True
        return not again
