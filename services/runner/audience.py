"""Who hears an agent at the moment: the listener of a turn, or between turns nobody."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable

from services.runner.acp.elicitation import Elicitation, ElicitationOutcome
from services.runner.acp.errors import INVALID_REQUEST
from services.runner.acp.lines import Message
from services.runner.acp.messages import AgentHandler, PermissionOutcome, PermissionRequest, SessionUpdate
from services.runner.acp.requests import ClientRequest
from services.runner.acp.rpc import RequestError


class Audience:
    """The handler of a connection that outlives turns.

    What an agent says to nobody is taken from it, so that it is not held up, and belongs to no turn.
    """

    def __init__(self) -> None:
        """Nobody hears it yet."""
        self.listener: AgentHandler | None = None

    async def on_update(self, update: SessionUpdate) -> None:
        """See AgentHandler."""
        if self.listener is not None:
            await self.listener.on_update(update)

    async def on_permission(self, request: PermissionRequest) -> Awaitable[PermissionOutcome]:
        """See AgentHandler; a question to nobody is withdrawn."""
        if self.listener is not None:
            return await self.listener.on_permission(request)
        withdrawn: asyncio.Future[PermissionOutcome] = asyncio.get_running_loop().create_future()
        withdrawn.set_result(None)
        return withdrawn

    async def on_elicitation(self, request: Elicitation) -> Awaitable[ElicitationOutcome]:
        """As `on_permission`."""
        if self.listener is not None:
            return await self.listener.on_elicitation(request)
        withdrawn: asyncio.Future[ElicitationOutcome] = asyncio.get_running_loop().create_future()
        withdrawn.set_result(None)
        return withdrawn

    async def on_request(self, request: ClientRequest) -> Awaitable[Message]:
        """See AgentHandler; nobody does anything between turns."""
        if self.listener is None:
            raise RequestError(INVALID_REQUEST, "no turn is in progress")
        return await self.listener.on_request(request)
