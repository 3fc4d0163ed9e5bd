"""Replicas of the session service and of its neighbours, in this process, on free ports."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

from services.owner.config import OwnerSettings
from services.owner.server import build as build_owner
from services.session.config import SessionSettings
from services.session.server import SessionReplica
from services.session.server import build as build_session
from services.workspace.config import WorkspaceSettings
from services.workspace.server import build as build_workspace

FREE = "127.0.0.1:0"
# Nothing listens there: discard is no service of these machines, and cannot be taken by chance.
NOWHERE = "127.0.0.1:9"


@dataclass(frozen=True, slots=True)
class Places:
    """What a replica of the session service depends on."""

    database_url: str
    owner_address: str
    workspace_address: str

    def settings(self, **changes: Any) -> SessionSettings:
        """Settings of a replica on free ports."""
        values: dict[str, Any] = {
            "listen": FREE,
            "journal_listen": FREE,
            "database_url": self.database_url,
            "owner_address": self.owner_address,
            "workspace_address": self.workspace_address,
            "shutdown_grace": 0.5,
        }
        return SessionSettings(**{**values, **changes})


@contextlib.asynccontextmanager
async def running_owner(database_url: str) -> AsyncIterator[str]:
    """A ready owner; gives its address."""
    async with build_owner(OwnerSettings(listen=FREE, database_url=database_url)).running() as endpoint:
        yield endpoint


@contextlib.asynccontextmanager
async def running_workspace(database_url: str, owner_address: str, **settings: Any) -> AsyncIterator[str]:
    """A ready workspace instance; gives its address."""
    chosen = WorkspaceSettings(
        listen=FREE, database_url=database_url, owner_address=owner_address, **settings
    )
    async with build_workspace(chosen).running() as endpoint:
        yield endpoint


@contextlib.asynccontextmanager
async def running_session(places: Places, **settings: Any) -> AsyncIterator[SessionReplica]:
    """A ready replica of the session service."""
    replica = build_session(places.settings(**settings))
    async with replica.running():
        yield replica
