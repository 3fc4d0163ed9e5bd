"""Calls to the session service as a project, with errors that people can read."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from moorage.session.v1.session_pb2_grpc import SessionServiceStub

from services.common.channels import open_channel

if TYPE_CHECKING:
    from moorage.session.v1.session_pb2_grpc import SessionServiceAsyncStub

PROJECT_KEY = "moorage-project"


@dataclass(frozen=True, slots=True)
class Connection:
    """A stub of the session service, and the metadata to send with each call."""

    sessions: SessionServiceAsyncStub
    metadata: tuple[tuple[str, str], ...]
    target: str


@asynccontextmanager
async def connect(target: str, project: str) -> AsyncIterator[Connection]:
    """A connection for the block."""
    channel = open_channel(target)
    try:
        yield Connection(SessionServiceStub(channel), ((PROJECT_KEY, project),), target)
    finally:
        await channel.close()
