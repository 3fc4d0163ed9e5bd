"""Waiting for a session's workspace, and saying meanwhile why it is not there yet."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Final

from moorage.session.v1 import session_pb2

from services.cli.connection import Connection
from services.cli.failures import CommandFailed

_FIRST_LOOK: Final = 0.05
_LONGEST_PAUSE: Final = 1.0
# Nothing becomes of it any more.
_SETTLED: Final = ("READY", "FAILED", "LOST", "DELETING", "DELETED")


class NotReady(CommandFailed):
    """A session's workspace will not be ready, or has taken too long."""


async def settled(
    connection: Connection,
    session_id: str,
    tell: Callable[[str], None],
    *,
    within: float | None = None,
) -> session_pb2.Session:
    """The session once its workspace is ready, or never will be; `tell` hears each new reason to wait.

    NotReady with the newest reason after `within` seconds.
    """
    deadline = None if within is None else time.monotonic() + within
    told, pause = "", _FIRST_LOOK
    while True:
        session = await _get(connection, session_id)
        if session.workspace.state in _SETTLED:
            return session
        reason = _reason(session.workspace)
        if reason not in ("", told):
            tell(f"the workspace is not ready yet: {reason}")
            told = reason
        if deadline is not None and time.monotonic() > deadline:
            cause = reason or "the service gives no reason"
            raise NotReady(f"the workspace was not ready within {within:g} s: {cause}")
        await asyncio.sleep(pause)
        pause = min(_LONGEST_PAUSE, 2 * pause)


def described(workspace: session_pb2.SessionWorkspace) -> str:
    """Which one, how it is, and why, as far as that is told."""
    reason = f": {workspace.state_reason}" if workspace.state_reason else ""
    return f"{workspace.workspace_id} is {workspace.state}{reason}"


def _reason(workspace: session_pb2.SessionWorkspace) -> str:
    if not workspace.state:
        return "the workspace service does not answer"
    return workspace.state_reason


async def _get(connection: Connection, session_id: str) -> session_pb2.Session:
    request = session_pb2.GetSessionRequest(session_id=session_id)
    return (await connection.sessions.GetSession(request, metadata=connection.metadata)).session
