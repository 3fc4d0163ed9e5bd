"""The session that belongs to a directory."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

from moorage.common.v1 import binding_pb2, turn_pb2
from moorage.session.v1 import session_pb2

from services.cli.connection import Connection

LABEL = "moorage.directory"


def directory_key(directory: Path) -> str:
    """The value of the label that finds a directory's session; a path may be longer than a label."""
    return hashlib.sha256(os.fsencode(directory)).hexdigest()[:32]


async def session_of(
    connection: Connection,
    directory: Path,
    *,
    profile: str,
    approval_policy: turn_pb2.ApprovalPolicy.ValueType,
) -> session_pb2.Session:
    """The directory's newest session, made when there is none; safe when two ask at once."""
    key = directory_key(directory)
    found = await connection.sessions.ListSessions(
        session_pb2.ListSessionsRequest(labels={LABEL: key}, page_size=1), metadata=connection.metadata
    )
    if found.sessions:
        return found.sessions[0]
    created = await connection.sessions.CreateSession(
        session_pb2.CreateSessionRequest(
            agent=session_pb2.AgentSpec(profile=profile),
            approval_policy=approval_policy,
            labels={LABEL: key},
            binding=binding_pb2.Binding(local=binding_pb2.LocalBinding(directory=str(directory))),
            request_id=f"directory-{key}",
        ),
        metadata=connection.metadata,
    )
    return created.session
