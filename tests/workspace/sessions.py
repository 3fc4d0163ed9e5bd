"""A session service that says one thing: which workspace its sessions have."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from typing import Any

import grpc
from moorage.common.v1.errors_pb2 import ErrorReason
from moorage.session.v1 import session_pb2
from moorage.session.v1.session_pb2_grpc import (
    SessionServiceServicer,
    add_SessionServiceServicer_to_server,
)

from services.common.errors import NotFound, Unavailable
from services.common.project import PROJECT_KEY
from services.common.status import to_status


class _NotStored(NotFound):
    """session {session_id} does not exist"""

    reason = ErrorReason.ERROR_REASON_SESSION_NOT_FOUND


class _Away(Unavailable):
    """not now"""

    reason = ErrorReason.ERROR_REASON_DEPENDENCY_UNAVAILABLE


class Sessions(SessionServiceServicer):
    """A session service that says which workspace its sessions have, by project and session."""

    def __init__(self) -> None:
        self.stored: dict[tuple[str, str], str] = {}
        self.asked: list[tuple[str, str]] = []
        self.away = False

    async def GetSession(
        self, request: session_pb2.GetSessionRequest, context: grpc.aio.ServicerContext[Any, Any]
    ) -> session_pb2.GetSessionResponse:
        metadata = dict(context.invocation_metadata() or ())
        key = (str(metadata[PROJECT_KEY]), request.session_id)
        self.asked.append(key)
        if self.away:
            await context.abort_with_status(to_status(_Away()))
        if key not in self.stored:
            await context.abort_with_status(to_status(_NotStored(session_id=request.session_id)))
        answer = session_pb2.GetSessionResponse()
        answer.session.workspace.workspace_id = self.stored[key]
        return answer


@contextlib.asynccontextmanager
async def serving(sessions: Sessions) -> AsyncIterator[str]:
    server = grpc.aio.server()
    add_SessionServiceServicer_to_server(sessions, server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        await server.stop(0)


def no_sessions() -> Sessions:
    """One that has stored none."""
    # The published servicers are abstract, and this one answers one question only.
    kind: Any = Sessions
    made: Sessions = kind()
    return made
