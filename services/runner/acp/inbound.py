"""What the agent sends by itself, and what this side knows while it comes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Final

from pydantic import ValidationError

from services.common.logs import get_logger
from services.runner.acp.elicitation import Elicitation, elicitation_request, told
from services.runner.acp.errors import INVALID_PARAMS
from services.runner.acp.library import CLIENT_METHODS, schema
from services.runner.acp.lines import Message
from services.runner.acp.messages import AgentHandler, PermissionRequest, Prompt, SessionUpdate
from services.runner.acp.permissions import Gates, outcome
from services.runner.acp.requests import client_request, settled
from services.runner.acp.rpc import Answer, RequestError

_log: Final = get_logger(__name__)


class Inbound:
    """Turns messages into calls of the handler, in order."""

    def __init__(self, handler: AgentHandler) -> None:
        """Nothing is prompted or loaded yet."""
        self._handler = handler
        self.gates = Gates()
        self.prompts: dict[str, Prompt] = {}
        self.loading: set[str] = set()

    async def on_notification(self, method: str, params: Message) -> None:
        """See Peer."""
        if method != CLIENT_METHODS["session_update"]:
            _log.debug("a notification of the agent was ignored", method=method)
            return
        session_id = str(params.get("sessionId", ""))
        replayed, in_prompt = session_id in self.loading, session_id in self.prompts
        await self._handler.on_update(SessionUpdate(params, replayed, in_prompt))

    async def on_request(self, method: str, params: Message) -> Answer:
        """See Peer."""
        if method == CLIENT_METHODS["session_request_permission"]:
            return await self._ask(permission_request(params))
        if method == CLIENT_METHODS["elicitation_create"]:
            return await self._elicit(elicitation_request(params))
        answer = await self._handler.on_request(client_request(method, params))
        return partial(settled, asyncio.ensure_future(answer))

    async def _ask(self, request: PermissionRequest) -> Answer:
        if not self._may_ask(request.session_id):
            return partial(_withdrawn, outcome)
        answer = await self._handler.on_permission(request)
        return self.gates.open(request.session_id, answer, outcome)

    async def _elicit(self, request: Elicitation) -> Answer:
        if not self._may_ask(request.session_id):
            return partial(_withdrawn, told)
        answer = await self._handler.on_elicitation(request)
        return self.gates.open(request.session_id, answer, told)

    def _may_ask(self, session_id: str) -> bool:
        return session_id in self.prompts and not self.gates.is_withdrawn(session_id)


async def _withdrawn(told: Callable[[None], Message]) -> Message:
    """The answer to a question that came too late."""
    return told(None)


def permission_request(params: Message) -> PermissionRequest:
    """By the schema; refused where it does not fit."""
    try:
        parsed = schema.RequestPermissionRequest.model_validate(params)
    except ValidationError as error:
        raise RequestError(
            INVALID_PARAMS, f"malformed permission request: {error.error_count()} errors"
        ) from error
    return PermissionRequest(parsed.session_id, parsed.tool_call, tuple(parsed.options), params)
