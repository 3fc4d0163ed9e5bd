"""opencode, a real coding agent, driven by a whole runner; its model is a server of this test."""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from moorage.common.v1 import record_pb2, turn_pb2
from moorage.common.v1.turn_pb2 import ApprovalPolicy, StopMethod
from moorage.session.v1 import session_pb2

from tests.agents.installed import OPENCODE, needs, surroundings
from tests.agents.model import Model, serving
from tests.conditions import eventually
from tests.runner.parts import Stack
from tests.runner.talks import Talks, kinds_of

# It takes seconds to start, on a machine that does nothing else.
pytestmark = [needs("opencode", OPENCODE), pytest.mark.timeout(180)]

COMPLETED, STOPPED = turn_pb2.TURN_STATE_COMPLETED, turn_pb2.TURN_STATE_STOPPED
MCP_SERVER = Path(__file__).parents[1] / "agents" / "mcp_server.py"
TOUCH = 'use bash {"command": "echo hi; touch made", "description": "Makes a file"}'


@pytest.fixture
async def model(root: Path) -> AsyncIterator[Model]:
    """The model, and the agent's configuration in its workspace."""
    async with serving() as model:
        provider = {
            "npm": "@ai-sdk/openai-compatible",
            "options": {"baseURL": model.base_url, "apiKey": "none"},
            "models": {"one": {"name": "One"}, "two": {"name": "Two"}},
        }
        configuration = {
            "model": "test/one",
            "provider": {"test": provider},
            "permission": {"bash": "ask"},
        }
        (root / "opencode.json").write_text(json.dumps(configuration), encoding="utf-8")
        yield model


@pytest.fixture
async def talks(stack: Stack, talks: Talks, model: Model) -> Talks:
    """A client, of a stack with a runner."""
    await stack.add_runner()
    return talks


@pytest.fixture
def agent(tmp_path: Path) -> dict[str, Any]:
    """The built-in profile, and variables by which nothing of this machine's user is touched."""
    environment = surroundings(tmp_path / "home", OPENCODE)
    return {"profile": "opencode", "environment": {**environment, "OPENCODE_DISABLE_MODELS_FETCH": "1"}}


async def answered(talks: Talks, turn_id: str, kind: str) -> None:
    """Answer the question that comes by the first option of this kind."""

    async def pending() -> bool:
        return (await talks.turn("s", turn_id)).state == turn_pb2.TURN_STATE_AWAITING_INPUT

    await eventually(pending, within=60, what="the agent asked")
    request = session_pb2.ListInteractionsRequest(session_id="s", pending_only=True)
    [asked] = (await talks.stub.ListInteractions(request)).interactions
    assert asked.title == "echo hi; touch made"
    option = next(option for option in asked.options if option.kind == kind)
    await talks.stub.AnswerInteraction(
        session_pb2.AnswerInteractionRequest(
            session_id="s", interaction_id=asked.interaction_id, option_id=option.option_id
        )
    )


async def test_text_a_second_turn_a_restart_of_the_runner_and_a_stop(
    stack: Stack, talks: Talks, model: Model, agent: dict[str, Any]
) -> None:
    await talks.create("s", **agent)
    await talks.start("s", "one", "say the lighthouse is green")
    first = await talks.ended("s", "one", within=90)
    assert (first.state, first.stop_reason) == (COMPLETED, "end_turn"), first
    assert await talks.said("s", "one") == "the lighthouse is green "
    assert first.metadata.agent.startswith("OpenCode ")
    assert first.metadata.model == "test/one"
    assert first.runtime_after == turn_pb2.RUNTIME_AFTER_WARM
    second = await talks.run("s", "two", "recall")
    assert second.metadata.resume_kind == turn_pb2.RESUME_KIND_WARM
    assert "say the lighthouse is green" in await talks.said("s", "two")
    await stack.runners["one"].stop()
    await stack.add_runner("another")
    await talks.start("s", "three", "recall")
    third = await talks.ended("s", "three", within=90)
    assert (third.state, third.metadata.resume_kind) == (COMPLETED, turn_pb2.RESUME_KIND_LOADED)
    assert "say the lighthouse is green" in await talks.said("s", "three")
    assert "user_message" not in kinds_of(await talks.records("s", "three"))[1:]
    await talks.start("s", "four", "never end")
    await talks.says("s", "four", "on and on")
    await talks.stop("s", "four")
    fourth = await talks.ended("s", "four")
    assert (fourth.state, fourth.stop_reason) == (STOPPED, "cancelled")
    ended = (await talks.records("s", "four"))[-1].body.turn_ended
    assert ended.stop_method == StopMethod.STOP_METHOD_AGENT_CONFIRMED
    await eventually(model.left.is_set, what="the model was told")
    fifth = await talks.run("s", "five", "say goes on")
    assert (fifth.state, fifth.metadata.resume_kind) == (COMPLETED, turn_pb2.RESUME_KIND_WARM)


async def test_a_tool_call_that_is_allowed_runs_and_one_that_is_not_does_not(
    talks: Talks, root: Path, agent: dict[str, Any]
) -> None:
    await talks.create("s", approval_policy=ApprovalPolicy.APPROVAL_POLICY_ASK, **agent)
    await talks.start("s", "no", TOUCH)
    await answered(talks, "no", "reject_once")
    assert (await talks.ended("s", "no", within=60)).state == COMPLETED
    assert not (root / "made").exists()
    await talks.start("s", "yes", TOUCH)
    await answered(talks, "yes", "allow_once")
    assert (await talks.ended("s", "yes", within=60)).state == COMPLETED
    assert (root / "made").exists()
    assert await talks.said("s", "yes") == "it said: hi\n"
    records = await talks.records("s", "yes")
    last = [record.body.tool_update for record in records if record.body.HasField("tool_update")][-1]
    assert last.status == record_pb2.TOOL_CALL_STATUS_COMPLETED
    assert last.content[0].block.text.text == "hi\n"
    calls = [record.body.tool_call for record in records if record.body.HasField("tool_call")]
    assert [call.kind for call in calls] == ["execute"]


async def test_model_mode_and_an_mcp_server_are_those_of_the_session(
    talks: Talks, model: Model, agent: dict[str, Any]
) -> None:
    server = session_pb2.McpServer(
        name="harbours",
        stdio=session_pb2.McpStdio(
            command=sys.executable, args=[str(MCP_SERVER)], environment={"KEEPER": "Ann"}
        ),
    )
    spec = session_pb2.AgentSpec(**agent, model="test/two", options={"mode": "plan"}, mcp_servers=[server])
    await talks.stub.CreateSession(session_pb2.CreateSessionRequest(session_id="s", agent=spec))
    await talks.start("s", "one", 'use harbours_lighthouse {"harbour": "Brest"}')
    turn = await talks.ended("s", "one", within=90)
    assert turn.state == COMPLETED, turn
    assert await talks.said("s", "one") == "it said: Ann keeps the light of Brest"
    assert turn.metadata.model == "test/two"
    assert set(model.models()) == {"two"}
    assert "Plan mode ACTIVE" in json.dumps(model.requests[-1])
    records = await talks.records("s", "one")
    told = [record.body.agent_options for record in records if record.body.HasField("agent_options")]
    assert {option.category: option.value for option in told[-1].options} == {
        "model": "test/two",
        "mode": "plan",
    }
    assert "agent_commands" in kinds_of(records)
