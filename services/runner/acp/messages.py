"""What passes between a connection and its user: typed where the schema knows it, raw always."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol, TypeVar

from pydantic import ValidationError

from services.common.validation import in_own_words
from services.runner.acp.elicitation import Elicitation, ElicitationOutcome
from services.runner.acp.errors import AgentProtocolError, AuthMethod
from services.runner.acp.library import schema
from services.runner.acp.lines import Message
from services.runner.acp.offers import Offers
from services.runner.acp.requests import ClientRequest

_Model = TypeVar("_Model", bound=schema.BaseModel)

# The id of the chosen option; None when the question was withdrawn.
PermissionOutcome = str | None


@dataclass(frozen=True)
class SessionUpdate:
    """A `session/update` as it came, with what the connection knows of its time."""

    raw: Message
    # It came while a session was loaded: part of the history, not of what happens.
    replayed: bool
    # A prompt was open; False for what an agent sends late or between prompts.
    in_prompt: bool

    @property
    def session_id(self) -> str:
        """The native session."""
        return str(self.raw.get("sessionId", ""))

    @property
    def kind(self) -> str:
        """The protocol's word for it, e.g. `agent_message_chunk`; empty when there is none."""
        update = self.raw.get("update")
        return str(update.get("sessionUpdate", "")) if isinstance(update, dict) else ""

    @property
    def raw_json(self) -> str:
        """The parameters as JSON."""
        return json.dumps(self.raw, ensure_ascii=False, separators=(",", ":"))

    @cached_property
    def model(self) -> Any:
        """The update as one of the schema's classes; None when it is of no known form."""
        try:
            return schema.SessionNotification.model_validate(self.raw).update
        except ValidationError:
            return None


@dataclass(frozen=True, slots=True)
class PermissionRequest:
    """The agent asks whether a tool call may run."""

    session_id: str
    tool_call: schema.ToolCallUpdate
    options: tuple[schema.PermissionOption, ...]
    raw: Message


class AgentHandler(Protocol):
    """The user of a connection. Its methods are called in the order of the stream."""

    async def on_update(self, update: SessionUpdate) -> None:
        """While it runs nothing more is taken from the agent; what it raises ends the connection."""
        ...

    async def on_permission(self, request: PermissionRequest) -> Awaitable[PermissionOutcome]:
        """As `on_update`; what it returns is awaited beside the stream and cancelled with the prompt."""
        ...

    async def on_elicitation(self, request: Elicitation) -> Awaitable[ElicitationOutcome]:
        """As `on_permission`."""
        ...

    async def on_request(self, request: ClientRequest) -> Awaitable[Message]:
        """As `on_update`; what it returns is awaited beside the stream. RequestError, here or there, refuses."""
        ...


@dataclass(frozen=True, slots=True)
class AgentInfo:
    """What an agent told about itself."""

    name: str
    version: str
    capabilities: schema.AgentCapabilities
    auth_methods: tuple[AuthMethod, ...]
    raw: Message

    @classmethod
    def of(cls, result: object) -> AgentInfo:
        """From the result of `initialize`."""
        parsed = parse(schema.InitializeResponse, "initialize", result)
        info = parsed.agent_info
        return cls(
            name=info.name if info else "",
            version=info.version if info else "",
            capabilities=parsed.agent_capabilities or schema.AgentCapabilities(),
            auth_methods=tuple(
                AuthMethod(method.id, method.name, method.description or "")
                for method in parsed.auth_methods or ()
            ),
            raw=as_message(result),
        )


@dataclass(frozen=True, slots=True)
class NativeSession:
    """A session as the agent knows it."""

    id: str
    offers: Offers
    raw: Message


@dataclass(frozen=True, slots=True)
class PromptResult:
    """How the agent ended a prompt; the stop reason is the protocol's or the agent's own word."""

    stop_reason: str
    usage: schema.Usage | None
    raw: Message

    @classmethod
    def of(cls, result: object) -> PromptResult:
        """From the result of `session/prompt`."""
        raw = as_message(result)
        stop_reason = raw.get("stopReason")
        if not isinstance(stop_reason, str):
            raise AgentProtocolError("the agent ended the prompt without a stop reason")
        # Reasons newer than the schema are let through, and numbers that it does not know are none.
        return cls(stop_reason, _usage(raw.get("usage")), raw)


class Prompt:
    """A prompt on its way. Whoever awaits it may be cancelled, or go away; it goes on."""

    def __init__(
        self, session_id: str, flushed: asyncio.Future[None], result: asyncio.Future[PromptResult]
    ) -> None:
        """Both futures fail with an AgentError."""
        self.session_id = session_id
        self._flushed = flushed
        self._result = result

    @property
    def flushed(self) -> asyncio.Future[None]:
        """To be awaited: every byte of the prompt is on its way to the agent, or AgentError."""
        return asyncio.shield(self._flushed)

    @property
    def result(self) -> asyncio.Future[PromptResult]:
        """To be awaited: the agent's end, after all updates before it were handled, or AgentError."""
        return asyncio.shield(self._result)

    @property
    def is_flushed(self) -> bool:
        """Whether the agent may have the whole prompt."""
        return self._flushed.done() and not self._flushed.exception()

    @property
    def is_done(self) -> bool:
        """Whether `result` returns or raises at once."""
        return self._result.done()


def parse(model: type[_Model], method: str, result: object) -> _Model:
    """The result by the schema, or AgentProtocolError."""
    try:
        return model.model_validate(result)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise AgentProtocolError(
            f"the agent's answer to {method} is malformed: {where}: {in_own_words(first['msg'])}"
        ) from error


def _usage(told: object) -> schema.Usage | None:
    try:
        return schema.Usage.model_validate(told)
    except ValidationError:
        return None


def as_message(result: object) -> Message:
    """A result that is no object counts as an empty one."""
    return result if isinstance(result, dict) else {}
