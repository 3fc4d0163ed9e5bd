"""One start of an agent, and how far a client has come with it."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from services.runner.acp.errors import AgentAuthRequired, AgentError
from services.runner.acp.messages import AgentInfo, Prompt
from services.runner.verify.agent import LocalAgent, Wanted
from services.runner.verify.findings import NotTried, Wrong


@dataclass(frozen=True, slots=True)
class Words:
    """What the agent is told: something short, and something that takes a while."""

    short: str
    long: str


@dataclass(slots=True)
class Visit:
    """One process start of the agent, and what is known of it so far."""

    agent: LocalAgent
    wanted: Wanted
    words: Words
    info: AgentInfo | None = None
    session_id: str = ""

    async def introduced(self) -> str:
        """It introduces itself."""
        try:
            self.info = await self.agent.connection.initialize(timeout=self.wanted.start_timeout)
        except AgentError as error:
            raise Wrong(f"{error}{self.agent.said}") from error
        return f"{self.info.name or 'no name'} {self.info.version}".strip()

    async def opened(self) -> str:
        """It opens a session."""
        directory = str(self.wanted.directory)
        try:
            native = await self.agent.connection.new_session(directory, timeout=self.wanted.start_timeout)
        except AgentAuthRequired as error:
            methods = ", ".join(method.name for method in error.methods) or "no method"
            raise NotTried(f"it wants a login first ({methods})") from error
        self.session_id = native.id
        return f"session {native.id}"

    def prompt(self, words: str) -> Prompt:
        """Begin to say something."""
        self.agent.watcher.spoke.clear()
        try:
            return self.agent.connection.prompt(self.session_id, [{"type": "text", "text": words}])
        except RuntimeError as error:
            raise NotTried("the prompt before has not ended") from error

    async def end_of(self, prompt: Prompt, what: str) -> str:
        """The stop reason; Wrong when there is none in time."""
        try:
            async with asyncio.timeout(self.wanted.timeout):
                return (await prompt.result).stop_reason
        except TimeoutError as error:
            raise Wrong(f"{what} was not ended within {self.wanted.timeout:g} s") from error
