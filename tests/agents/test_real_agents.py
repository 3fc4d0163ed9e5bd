"""Known agents, started as their profiles say, up to what they can do without a key or a network."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from services.runner.acp.errors import AgentAuthRequired, AgentRefused
from services.runner.acp.offers import Offers
from services.runner.profiles import load_profiles, resolve_command
from tests.agents.installed import COMMANDS, OPENCODE, needs, surroundings
from tests.agents.peers import Agent, connected

pytestmark = pytest.mark.timeout(120)
TIMEOUT = 60.0


@dataclass(frozen=True)
class Known:
    """What an agent says of itself, and how it takes a request for a session."""

    profile: str
    program: str
    name: str
    loads: bool = True
    wants_login: bool = False
    lacks: str = ""


@pytest.mark.parametrize(
    "known",
    [
        pytest.param(
            Known("opencode", "opencode", "OpenCode"), id="opencode", marks=needs("opencode", OPENCODE)
        ),
        pytest.param(
            Known("claude", "claude-agent-acp", "@agentclientprotocol/claude-agent-acp"),
            id="claude",
            marks=needs("claude-agent-acp"),
        ),
        pytest.param(
            Known("codex", "codex-acp", "@agentclientprotocol/codex-acp", wants_login=True),
            id="codex",
            marks=needs("codex-acp"),
        ),
        pytest.param(
            Known("gemini", "gemini", "gemini-cli", wants_login=True), id="gemini", marks=needs("gemini")
        ),
        pytest.param(
            Known("pi", "pi-acp", "pi-acp", lacks="executable not found"), id="pi", marks=needs("pi-acp")
        ),
    ],
)
async def test_an_agent_introduces_itself_and_opens_a_session_or_says_why_not(
    known: Known, tmp_path: Path
) -> None:
    command = resolve_command(load_profiles()[known.profile])
    assert command[0] == known.program
    environment = {
        **surroundings(tmp_path / "home", OPENCODE, COMMANDS),
        "OPENCODE_DISABLE_MODELS_FETCH": "1",
        "OPENCODE_DISABLE_AUTOUPDATE": "1",
    }
    program = next(path for path in (OPENCODE, COMMANDS) if (path / known.program).exists()) / known.program
    async with connected(str(program), *command[1:], directory=tmp_path, environment=environment) as agent:
        info = await agent.connection.initialize(timeout=TIMEOUT)
        assert info.name == known.name
        assert info.version
        assert bool(info.capabilities.load_session) == known.loads
        offers = await _opened(agent, tmp_path, known)
        if offers is not None:
            assert offers.in_category("mode") or offers.modes.choices


async def _opened(agent: Agent, directory: Path, known: Known) -> Offers | None:
    if known.wants_login:
        with pytest.raises(AgentAuthRequired) as wanted:
            await agent.connection.new_session(str(directory), timeout=TIMEOUT)
        assert wanted.value.methods
        return None
    if known.lacks:
        with pytest.raises(AgentRefused, match=known.lacks):
            await agent.connection.new_session(str(directory), timeout=TIMEOUT)
        return None
    return (await agent.connection.new_session(str(directory), timeout=TIMEOUT)).offers
