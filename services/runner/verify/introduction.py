"""Whether an agent can be used here, in one line that says what is missing."""

from __future__ import annotations

import shutil
from dataclasses import dataclass

from services.runner.acp.errors import AgentAuthRequired, AgentError
from services.runner.profiles import Profile
from services.runner.verify.agent import LocalAgent, Wanted, started


@dataclass(frozen=True, slots=True)
class Introduction:
    """Whether it opens a session, and what it said or lacks."""

    works: bool
    words: str


async def introduce(wanted: Wanted, profile: Profile) -> Introduction:
    """Start it, and have it open a session."""
    program = wanted.command[0]
    if shutil.which(program, path=wanted.environment.get("PATH")) is None:
        return _lacks(f"{program} is not installed", profile.install)
    try:
        async with started(wanted) as agent:
            return await _met(agent, wanted, profile)
    except OSError as error:
        return _lacks(f"{program} cannot be started: {error.strerror or error}", profile.install)


async def _met(agent: LocalAgent, wanted: Wanted, profile: Profile) -> Introduction:
    try:
        info = await agent.connection.initialize(timeout=wanted.start_timeout)
    except AgentError as error:
        return _lacks(f"it does not introduce itself: {error}{agent.said}", "")
    name = f"{info.name} {info.version}".strip() or "an agent without a name"
    try:
        await agent.connection.new_session(str(wanted.directory), timeout=wanted.start_timeout)
    except AgentAuthRequired as error:
        methods = ", ".join(method.name for method in error.methods)
        return _lacks(f"{name} wants a login", profile.login or methods)
    except AgentError as error:
        return _lacks(f"{name} opens no session: {error}{agent.said}", "")
    return Introduction(works=True, words=f"{name} opens sessions")


def _lacks(words: str, remedy: str) -> Introduction:
    return Introduction(works=False, words=f"{words}: {remedy}" if remedy else words)
