"""The session that belongs to a directory."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import grpc
from moorage.common.v1 import binding_pb2, turn_pb2
from moorage.session.v1 import session_pb2

from services.cli.connection import Connection
from services.cli.failures import CommandFailed
from services.cli.making import Making
from services.common.status import from_rpc_error
from services.common.validation import mint_id

LABEL = "moorage.directory"
_REUSED = "REQUEST_ID_REUSED"
# What an earlier call with the same request id made was deleted since.
_GONE = "SESSION_NOT_FOUND"
# Deleted sessions are not listed, but the ids that made them are remembered for a day: a call for each.
_LONGEST_CHAIN = 5


class NoSession(CommandFailed):
    """Nobody ran a turn in this directory yet."""


def directory_key(directory: Path) -> str:
    """The value of the label that finds a directory's session; a path may be longer than a label."""
    return hashlib.sha256(os.fsencode(directory)).hexdigest()[:32]


async def find_session(connection: Connection, directory: Path) -> session_pb2.Session:
    """The directory's newest session. Raises NoSession."""
    found = await _newest(connection, directory)
    if found is None:
        raise NoSession(f"no session belongs to {directory}", hint="`moorage run` makes one")
    return found


async def session_of(
    connection: Connection,
    directory: Path,
    *,
    agent: session_pb2.AgentSpec,
    approval_policy: turn_pb2.ApprovalPolicy.ValueType,
    making: Making,
    new: bool = False,
) -> session_pb2.Session:
    """The directory's newest session, made when there is none; two who ask at once make one.

    A new one works in the directory itself, or in what is made for it. With `new` it is made
    though there is one that is open, for everybody who asks.
    """
    newest = await _last(connection, directory)
    if newest is not None and newest.state == session_pb2.SESSION_STATE_OPEN and not new:
        return newest
    request = session_pb2.CreateSessionRequest(
        agent=agent,
        approval_policy=approval_policy,
        labels={LABEL: directory_key(directory), **making.labels()},
    )
    if making:
        request.provision.CopyFrom(making.spec(directory if making.in_container else None))
    else:
        local = binding_pb2.LocalBinding(directory=str(directory))
        request.binding.CopyFrom(binding_pb2.Binding(local=local))
    if not new:
        made = await _made_together(connection, directory, request, newest.session_id if newest else "")
        if made is not None:
            return made
    return await _create(connection, request, _request_id(directory, mint_id("new")))


async def _made_together(
    connection: Connection, directory: Path, request: session_pb2.CreateSessionRequest, before: str
) -> session_pb2.Session | None:
    """The one after `before`, which is closed; two who ask at once make one. None when too many were deleted since."""
    for _ in range(_LONGEST_CHAIN):
        try:
            return await _create(connection, request, _request_id(directory, before))
        except grpc.aio.AioRpcError as error:
            refusal = from_rpc_error(error)
            if refusal.reason_name == _GONE:
                before = refusal.metadata["session_id"]
            elif refusal.reason_name != _REUSED:
                raise
            elif (quicker := await _newest(connection, directory)) is not None:
                # Somebody was quicker, with another profile or policy.
                return quicker
            else:
                # Made with others, and deleted or closed since: after it comes what is wanted now.
                before = f"{before}-{_digest(request)}"
    return None


async def _create(
    connection: Connection, request: session_pb2.CreateSessionRequest, request_id: str
) -> session_pb2.Session:
    asked = session_pb2.CreateSessionRequest()
    asked.CopyFrom(request)
    asked.request_id = request_id
    return (await connection.sessions.CreateSession(asked, metadata=connection.metadata)).session


def _request_id(directory: Path, before: str) -> str:
    """An id is used for one creation only, the one after `before`."""
    return f"directory-{directory_key(directory)}-{before}"


def _digest(request: session_pb2.CreateSessionRequest) -> str:
    return hashlib.sha256(request.SerializeToString(deterministic=True)).hexdigest()[:16]


async def _newest(connection: Connection, directory: Path) -> session_pb2.Session | None:
    """The newest one, unless it is being closed."""
    newest = await _last(connection, directory)
    return newest if newest and newest.state == session_pb2.SESSION_STATE_OPEN else None


async def _last(connection: Connection, directory: Path) -> session_pb2.Session | None:
    request = session_pb2.ListSessionsRequest(labels={LABEL: directory_key(directory)}, page_size=1)
    found = await connection.sessions.ListSessions(request, metadata=connection.metadata)
    return next(iter(found.sessions), None)
