"""Real agents that want a login: what a turn says then."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from moorage.common.v1 import turn_pb2
from moorage.session.v1 import session_pb2

from tests.agents.installed import COMMANDS, needs, surroundings
from tests.runner.parts import Stack
from tests.runner.talks import Talks

pytestmark = pytest.mark.timeout(120)


@pytest.mark.parametrize(
    ("profile", "remedy"),
    [
        pytest.param("codex", "OPENAI_API_KEY", marks=needs("codex-acp")),
        pytest.param("gemini", "GEMINI_API_KEY", marks=needs("gemini")),
    ],
)
async def test_a_login_that_is_wanted_is_told_with_its_methods(
    stack: Stack, talks: Talks, tmp_path: Path, profile: str, remedy: str
) -> None:
    await stack.add_runner()
    agent = session_pb2.AgentSpec(profile=profile, environment=surroundings(tmp_path / "home", COMMANDS))
    await talks.stub.CreateSession(session_pb2.CreateSessionRequest(session_id="s", agent=agent))
    await talks.start("s", "t", "hello")
    turn = await talks.ended("s", "t", within=90)
    assert (turn.state, turn.end_reason) == (
        turn_pb2.TURN_STATE_FAILED,
        turn_pb2.END_REASON_AGENT_AUTH_REQUIRED,
    )
    assert remedy in turn.error.metadata["login"]
    assert all(method["name"] for method in json.loads(turn.error.metadata["methods"]))
    assert not turn.prompt_sent
