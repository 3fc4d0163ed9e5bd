"""What can go wrong with an agent.

AgentError
├── AgentExited               its output ended
├── AgentProtocolError        it does not speak the protocol
├── AgentTimeout              it did not answer, or did not read, in time
├── HandlerFailed             this side could not take what it sent
├── UnsupportedContent        it does not take what the prompt holds
├── UnsupportedServer         it cannot reach an MCP server of its session
└── AgentRefused              it answered a request with an error
    └── AgentAuthRequired     it wants a login first
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

AUTH_REQUIRED: Final = -32000
RESOURCE_NOT_FOUND: Final = -32002
INVALID_REQUEST: Final = -32600
METHOD_NOT_FOUND: Final = -32601
INVALID_PARAMS: Final = -32602
INTERNAL_ERROR: Final = -32603


class AgentError(Exception):
    """An agent did not do what it was asked."""


class AgentExited(AgentError):
    """The agent's output ended, or its input cannot be written any more."""


class AgentProtocolError(AgentError):
    """The agent sent something that cannot be understood and cannot be passed over."""


class AgentTimeout(AgentError):
    """The agent did not answer, or did not take its input, in time."""


class HandlerFailed(AgentError):
    """This side could not take what the agent sent and gave up; the cause says why."""


class UnsupportedContent(AgentError):
    """The prompt holds content that the agent does not take."""


class UnsupportedServer(AgentError):
    """The session names an MCP server that the agent cannot reach."""


class AgentRefused(AgentError):
    """The agent answered a request with a JSON-RPC error."""

    def __init__(self, method: str, code: int, message: str, data: object = None) -> None:
        """Keep the error as the agent gave it."""
        super().__init__(f"the agent refused {method}: {message} ({code})")
        self.method = method
        self.code = code
        self.message = message
        self.data = data


@dataclass(frozen=True, slots=True)
class AuthMethod:
    """A way to log in that the agent offers."""

    id: str
    name: str
    description: str


class AgentAuthRequired(AgentRefused):
    """The agent wants a login before it opens a session."""

    methods: tuple[AuthMethod, ...]

    @classmethod
    def after(cls, refused: AgentRefused, methods: tuple[AuthMethod, ...]) -> AgentAuthRequired:
        """Name the methods that the agent told when it was initialised."""
        error = cls(refused.method, refused.code, refused.message, refused.data)
        error.methods = methods
        return error
