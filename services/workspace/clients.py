"""What the workspace service asks of others: whether a session is stored."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import grpc
from moorage.session.v1 import session_pb2
from moorage.session.v1.session_pb2_grpc import SessionServiceStub

from services.common.errors import NotFound
from services.common.project import PROJECT_KEY
from services.common.status import from_dependency

if TYPE_CHECKING:
    from moorage.session.v1.session_pb2_grpc import SessionServiceAsyncStub

_TIMEOUT: Final = 5.0
_NOT_STORED: Final = "SESSION_NOT_FOUND"


class Sessions:
    """The session service, as any client sees it."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        """The channel leads to it."""
        self._stub: SessionServiceAsyncStub = SessionServiceStub(channel)

    async def workspace_of(self, project: str, session_id: str) -> str | None:
        """The workspace that a session is stored with; None when no session of this id is stored.

        Any other answer, or none, raises: nothing is known then.
        """
        request = session_pb2.GetSessionRequest(session_id=session_id)
        try:
            answer = await self._stub.GetSession(
                request, timeout=_TIMEOUT, metadata=((PROJECT_KEY, project),)
            )
        except grpc.aio.AioRpcError as error:
            told = from_dependency("session", error)
            if isinstance(told, NotFound) and told.reason_name == _NOT_STORED:
                return None
            raise told from error
        return answer.session.workspace.workspace_id
