"""Modes, models, options and MCP servers of a session: set when its native session is opened (T6)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from moorage.common.v1 import turn_pb2
from moorage.common.v1.record_pb2 import RecordBody
from moorage.session.v1 import session_pb2

from tests.runner.parts import Stack
from tests.runner.profiles import write_rogue
from tests.runner.talks import Talks

COMPLETED, FAILED = turn_pb2.TURN_STATE_COMPLETED, turn_pb2.TURN_STATE_FAILED
AGENT_START_FAILED = turn_pb2.END_REASON_AGENT_START_FAILED
STDIO = session_pb2.McpServer(
    name="files",
    stdio=session_pb2.McpStdio(command="files", args=["--all"], environment={"B": "2", "A": "1"}),
)
HTTP = session_pb2.McpServer(name="far", http=session_pb2.McpHttp(url="http://127.0.0.1:1/mcp"))


@pytest.fixture
async def wanted(stack: Stack, talks: Talks, tmp_path: Path) -> Any:
    """Makes a session whose agent is to be set like this."""
    profile = write_rogue(tmp_path / "profiles", "tells_settings")
    await stack.add_runner(profiles_directory=tmp_path / "profiles")

    async def make(session_id: str, **fields: Any) -> None:
        agent = session_pb2.AgentSpec(profile=profile, **fields)
        request = session_pb2.CreateSessionRequest(session_id=session_id, agent=agent)
        await talks.stub.CreateSession(request)

    return make


async def bodies(talks: Talks, session_id: str, kind: str) -> list[RecordBody]:
    """The bodies of one kind."""
    return [r.body for r in await talks.records(session_id, "t") if r.body.WhichOneof("body") == kind]


async def test_what_the_session_wants_is_set_and_told(wanted: Any, talks: Talks) -> None:
    options = {"level": "high", "loud": "true"}
    await wanted("s", mode="code", model="large", options=options, mcp_servers=[STDIO])
    turn = await talks.run("s", "t", "go")
    assert turn.state == COMPLETED, turn
    assert turn.metadata.model == "large"
    variables = [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}]
    assert json.loads(await talks.said("s", "t")) == {
        "mode": "code",
        "model": "large",
        "level": "high",
        "loud": True,
        "mcp_servers": [{"name": "files", "command": "files", "args": ["--all"], "env": variables}],
    }
    modes = [body.agent_mode for body in await bodies(talks, "s", "agent_mode")]
    assert [mode.mode_id for mode in modes] == ["code", "ask"]
    assert [choice.id for choice in modes[0].modes] == ["ask", "code"]
    told = [body.agent_options.options for body in await bodies(talks, "s", "agent_options")]
    values = [{option.option_id: option.value for option in options} for options in told]
    assert values == [{"level": "high", "loud": "true"}, {"level": "high", "loud": "false"}]
    assert [choice.name for choice in told[0][0].choices] == ["Low", "High"]
    [info] = await bodies(talks, "s", "agent_session_info")
    assert info.agent_session_info.title == "A talk"
    [commands] = await bodies(talks, "s", "agent_commands")
    hints = {command.name: command.input_hint for command in commands.agent_commands.commands}
    assert hints == {"find": "what to look for", "go": ""}


async def test_an_agent_is_left_as_it_is_where_nothing_is_wanted(wanted: Any, talks: Talks) -> None:
    await wanted("s")
    turn = await talks.run("s", "t", "go")
    assert (turn.state, turn.metadata.model) == (COMPLETED, "small")
    said = json.loads(await talks.said("s", "t"))
    assert (said["mode"], said["level"], said["loud"], said["mcp_servers"]) == ("ask", "low", False, [])


@pytest.mark.parametrize(
    ("fields", "setting", "offered"),
    [
        ({"mode": "fly"}, "mode", "ask, code"),
        ({"model": "huge"}, "model", "small, large"),
        ({"options": {"colour": "red"}}, "option", "level, loud"),
        ({"options": {"level": "middle"}}, "level", "low, high"),
        ({"options": {"loud": "very"}}, "loud", "true, false"),
    ],
)
async def test_what_the_agent_does_not_offer_fails_the_turn_before_its_prompt(
    wanted: Any, talks: Talks, fields: dict[str, Any], setting: str, offered: str
) -> None:
    await wanted("s", **fields)
    turn = await talks.run("s", "t", "go")
    assert (turn.state, turn.end_reason, turn.error.code) == (FAILED, AGENT_START_FAILED, "NOT_OFFERED")
    assert turn.error.metadata["setting"] == setting
    assert turn.error.metadata["offered"] == offered
    assert not turn.prompt_sent


async def test_an_mcp_server_that_the_agent_cannot_reach_fails_the_turn(wanted: Any, talks: Talks) -> None:
    await wanted("s", mcp_servers=[HTTP])
    turn = await talks.run("s", "t", "go")
    assert (turn.state, turn.error.code) == (FAILED, "UNSUPPORTED_MCP_SERVER")
    assert "far" in turn.error.message
    assert not turn.prompt_sent
