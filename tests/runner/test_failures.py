"""Every way in which a turn fails, by its real cause, and what the turn then says."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.duration_pb2 import Duration
from moorage.common.v1 import binding_pb2, turn_pb2
from moorage.common.v1.turn_pb2 import EndReason, Limits, TurnPhase
from moorage.runner.v1 import runner_pb2
from moorage.runner.v1.runner_pb2_grpc import RunnerServiceStub
from moorage.session.v1.session_pb2 import Turn
from moorage.workspace.v1 import workspace_pb2
from moorage.workspace.v1.workspace_pb2_grpc import WorkspaceServiceStub

from services.common.channels import open_channel
from tests.conditions import eventually
from tests.databases import execute
from tests.runner.parts import Stack
from tests.runner.profiles import write_profile, write_rogue, write_shell
from tests.runner.talks import Talks, kinds_of


@pytest.fixture
def profiles(tmp_path: Path) -> Path:
    """A directory of profiles."""
    directory = tmp_path / "profiles"
    directory.mkdir()
    return directory


@pytest.fixture
def runner_settings(profiles: Path) -> dict[str, Any]:
    """What the runners of these tests have."""
    return {"profiles_directory": profiles}


async def failed(
    stack: Stack, talks: Talks, settings: dict[str, Any], profile: str, prompt: str = "hello", **fields: Any
) -> Turn:
    """A turn of this profile that has ended badly, with the one end record of it."""
    await stack.add_runner(**settings)
    await talks.create("s", profile=profile, **fields)
    turn = await talks.run("s", "t", prompt)
    assert turn.state == turn_pb2.TURN_STATE_FAILED
    records = await talks.records("s", "t")
    assert kinds_of(records).count("turn_ended") == 1
    assert records[-1].body.turn_ended.error == turn.error
    return turn


def reason(turn: Turn) -> str:
    """Why it ended."""
    return EndReason.Name(turn.end_reason).removeprefix("END_REASON_")


async def test_a_command_that_does_not_exist(
    stack: Stack, talks: Talks, runner_settings: dict[str, Any], profiles: Path
) -> None:
    write_profile(profiles, "missing", "no-such-command", "--acp", install="pip install no-such-command")
    turn = await failed(stack, talks, runner_settings, "missing")
    assert reason(turn) == "AGENT_START_FAILED"
    assert turn.error.code == "EXEC_START_FAILED"
    assert "no-such-command" in turn.error.message
    assert turn.error.metadata["install"] == "pip install no-such-command"
    assert not turn.prompt_sent


async def test_a_profile_that_wants_what_the_workspace_does_not_give(
    stack: Stack, talks: Talks, runner_settings: dict[str, Any], profiles: Path
) -> None:
    write_profile(profiles, "nosy", "true", inherit_environment=["MOORAGE_DATABASE_URL"])
    turn = await failed(stack, talks, runner_settings, "nosy")
    assert reason(turn) == "AGENT_START_FAILED"
    assert turn.error.code == "INVALID_FIELD"
    assert turn.error.metadata["field"] == "start.inherit_environment"
    assert "MOORAGE_DATABASE_URL" in turn.error.message


async def test_an_agent_that_exits_at_once(
    stack: Stack, talks: Talks, runner_settings: dict[str, Any], profiles: Path
) -> None:
    write_shell(profiles, "quitter", "echo no licence found >&2; exit 3")
    turn = await failed(stack, talks, runner_settings, "quitter")
    assert (reason(turn), turn.error.code) == ("AGENT_EXITED", "AGENT_EXITED")
    assert turn.error.metadata["exit_code"] == "3"
    assert turn.error.metadata["stderr"] == "no licence found"
    assert turn.error.message == "the agent ended with exit code 3: no licence found"
    assert "signal" not in turn.error.metadata
    assert not turn.prompt_sent
    assert turn.runtime_after == turn_pb2.RUNTIME_AFTER_ENDED


async def test_an_agent_that_is_killed(
    stack: Stack, talks: Talks, runner_settings: dict[str, Any], profiles: Path
) -> None:
    write_shell(profiles, "victim", "kill -KILL $$")
    turn = await failed(stack, talks, runner_settings, "victim")
    assert reason(turn) == "AGENT_EXITED"
    assert turn.error.metadata["signal"] == "SIGKILL"
    assert "exit_code" not in turn.error.metadata


async def test_an_agent_that_exits_well_before_it_has_answered(
    stack: Stack, talks: Talks, runner_settings: dict[str, Any]
) -> None:
    turn = await failed(stack, talks, runner_settings, "demo", "exit 0")
    assert reason(turn) == "AGENT_EXITED"
    assert turn.error.metadata["exit_code"] == "0"


async def test_an_agent_that_exits_in_the_middle_keeps_what_it_said(
    stack: Stack, talks: Talks, runner_settings: dict[str, Any]
) -> None:
    turn = await failed(stack, talks, runner_settings, "demo", "say last words\nexit 9")
    assert reason(turn) == "AGENT_EXITED"
    assert turn.error.metadata["exit_code"] == "9"
    assert turn.prompt_sent
    assert await talks.said("s", "t") == "last words"


async def test_an_agent_that_answers_with_an_error(
    stack: Stack, talks: Talks, runner_settings: dict[str, Any]
) -> None:
    turn = await failed(stack, talks, runner_settings, "demo", "say well\nfail the model is gone")
    assert (reason(turn), turn.error.code) == ("AGENT_PROTOCOL_ERROR", "AGENT_PROTOCOL_ERROR")
    assert turn.error.metadata["agent_message"] == "the model is gone"
    assert turn.error.metadata["agent_code"] == "-32603"
    assert turn.error.metadata["method"] == "session/prompt"
    assert await talks.said("s", "t") == "well"


async def test_an_agent_that_breaks_its_protocol(
    stack: Stack, talks: Talks, runner_settings: dict[str, Any], profiles: Path
) -> None:
    turn = await failed(stack, talks, runner_settings, write_rogue(profiles, "malformed_session"))
    assert reason(turn) == "AGENT_PROTOCOL_ERROR"
    assert "session/new" in turn.error.message


async def test_an_agent_that_wants_a_login(
    stack: Stack, talks: Talks, runner_settings: dict[str, Any], profiles: Path
) -> None:
    turn = await failed(stack, talks, runner_settings, write_rogue(profiles, "wants_login"))
    assert (reason(turn), turn.error.code) == ("AGENT_AUTH_REQUIRED", "AGENT_AUTH_REQUIRED")
    assert json.loads(turn.error.metadata["methods"]) == [
        {"id": "browser", "name": "In a browser", "description": "opens a page"}
    ]
    assert not turn.prompt_sent


async def test_a_prompt_that_the_agent_does_not_take(
    stack: Stack, talks: Talks, runner_settings: dict[str, Any]
) -> None:
    await stack.add_runner(**runner_settings)
    await talks.create("s")
    image = {"image": {"mime_type": "image/png", "data": b"\x89PNG"}}
    await talks.start("s", "t", "look:", image)
    turn = await talks.ended("s", "t")
    assert reason(turn) == "AGENT_PROTOCOL_ERROR"
    assert turn.error.code == "UNSUPPORTED_CONTENT"
    assert not turn.prompt_sent


async def test_an_agent_that_never_introduces_itself(
    stack: Stack, talks: Talks, runner_settings: dict[str, Any], profiles: Path
) -> None:
    write_shell(profiles, "mute", "echo starting up >&2; exec sleep 600")
    turn = await failed(stack, talks, {**runner_settings, "agent_start_timeout": 0.5}, "mute")
    assert (reason(turn), turn.error.code) == ("PHASE_DEADLINE", "PHASE_DEADLINE")
    assert turn.error.metadata["phase"] == "STARTING_AGENT"
    assert turn.error.metadata["timeout"] == "0.5"
    assert turn.error.metadata["stderr"] == "starting up"
    assert turn.runtime_after == turn_pb2.RUNTIME_AFTER_ENDED


async def test_an_agent_that_never_opens_its_session(
    stack: Stack, talks: Talks, runner_settings: dict[str, Any], profiles: Path
) -> None:
    answer = json.dumps({"jsonrpc": "2.0", "id": 0, "result": {"protocolVersion": 1}})
    script = f"import sys, json\nid = json.loads(sys.stdin.readline())['id']\nanswer = {answer!r}\n"
    script += "print(json.dumps(json.loads(answer) | {'id': id}), flush=True)\nsys.stdin.read()"
    write_profile(profiles, "stuck", "{python}", "-c", script.replace("{", "{{").replace("}", "}}"))
    turn = await failed(stack, talks, {**runner_settings, "load_timeout": 0.5}, "stuck")
    assert reason(turn) == "PHASE_DEADLINE"
    assert turn.error.metadata["phase"] == "LOADING_SESSION"


async def test_a_workspace_that_is_not_ready_in_time(
    stack: Stack, talks: Talks, runner_settings: dict[str, Any]
) -> None:
    await stack.add_runner(**runner_settings, prepare_timeout=1.0)
    await talks.create("s")
    await stack.workspace.stop()
    await talks.start("s", "t", "hello")
    waiting = []

    async def tells_why() -> bool:
        turn = await talks.turn("s", "t")
        waiting.append(turn.waiting_reason)
        assert not turn.HasField("begin_time") or turn.HasField("end_time") or turn.HasField("phase_deadline")
        return "unavailable" in waiting[-1].lower() or "connect" in waiting[-1].lower()

    await eventually(tells_why, what="the turn says what it waits for")
    turn = await talks.ended("s", "t")
    assert reason(turn) == "PHASE_DEADLINE"
    assert turn.error.metadata["phase"] == "PREPARING_WORKSPACE"
    assert turn.error.metadata["waiting_reason"]


async def test_a_workspace_that_was_removed(
    stack: Stack, talks: Talks, runner_settings: dict[str, Any]
) -> None:
    await stack.add_runner(**runner_settings)
    session = await talks.create("s")
    async with open_channel(stack.workspace.endpoint) as channel:
        request = workspace_pb2.DeleteWorkspaceRequest(
            project="default", workspace_id=session.workspace.workspace_id
        )
        await WorkspaceServiceStub(channel).DeleteWorkspace(request)
    turn = await talks.run("s", "t", "hello")
    assert (reason(turn), turn.error.code) == ("PREPARE_FAILED", "WORKSPACE_NOT_READY")
    assert turn.error.metadata["state"] in ("DELETING", "DELETED")


async def test_a_binding_that_cannot_be_resolved_never_becomes_another(
    stack: Stack, talks: Talks, runner_settings: dict[str, Any]
) -> None:
    await stack.add_runner(**runner_settings)
    await talks.create("s")
    cloud = binding_pb2.Binding(
        origin=binding_pb2.BINDING_ORIGIN_SUPPLIED, cloud=binding_pb2.CloudBinding(provider="moon")
    )
    await execute(
        stack.database_url,
        "UPDATE session.sessions SET binding_kind = 'cloud', binding = $1",
        cloud.SerializeToString(),
    )
    turn = await talks.run("s", "t", "say where")
    assert (reason(turn), turn.error.code) == ("BINDING_UNRESOLVED", "BINDING_UNRESOLVED")
    assert await talks.said("s", "t") == ""


async def test_a_profile_that_the_runner_does_not_have(
    stack: Stack, talks: Talks, runner_settings: dict[str, Any]
) -> None:
    await talks.create("s", profile="elsewhere")
    await talks.start("s", "t", "hello")
    runner = await stack.add_runner(**runner_settings)
    async with open_channel(runner.endpoint) as channel:
        request = runner_pb2.DispatchTurnRequest(project="default", session_id="s", turn_id="t")
        await RunnerServiceStub(channel).DispatchTurn(request)
    turn = await talks.ended("s", "t")
    assert (reason(turn), turn.error.code) == ("AGENT_START_FAILED", "PROFILE_UNKNOWN")
    assert turn.error.metadata["profile"] == "elsewhere"
    assert "demo" in turn.error.metadata["profiles"]


async def test_a_workspace_service_that_goes_away_under_the_agent(
    stack: Stack, talks: Talks, runner_settings: dict[str, Any]
) -> None:
    await stack.add_runner(**runner_settings, lease_ttl=2.0)
    await talks.create("s")
    await talks.start("s", "t", "say before\nsleep 600")

    async def speaks() -> bool:
        return "Sleeping" in await talks.said("s", "t")

    await eventually(speaks)
    await stack.workspace.stop()
    turn = await talks.ended("s", "t")
    assert reason(turn) == "WORKSPACE_LOST"
    assert turn.error.message.startswith("workspace is unavailable: ")
    # Nobody is left who could say that it is dead.
    assert turn.runtime_after == turn_pb2.RUNTIME_AFTER_UNSPECIFIED
    assert (await talks.said("s", "t")).startswith("before")


@pytest.mark.parametrize(
    ("limits", "prompt", "expected", "limit"),
    [
        # It counts from the beginning of the turn, and an agent has to start before it can be told.
        (Limits(max_duration=Duration(seconds=4)), "say begun\nsleep 600", "MAX_DURATION", "4"),
        (Limits(max_silence=Duration(seconds=1)), "say begun\nsleep 600", "MAX_SILENCE", "1"),
        (Limits(max_tool_calls=2), "say begun\nrun true\nrun true\nrun sleep 600", "MAX_TOOL_CALLS", "2"),
    ],
)
async def test_a_limit_that_is_exceeded(
    stack: Stack,
    talks: Talks,
    runner_settings: dict[str, Any],
    limits: Limits,
    prompt: str,
    expected: str,
    limit: str,
) -> None:
    turn = await failed(stack, talks, runner_settings, "demo", prompt, limits=limits)
    assert (reason(turn), turn.error.code) == (expected, expected)
    assert turn.error.metadata["limit"] == limit
    # The agent was told, and said so.
    assert turn.stop_reason == "cancelled"
    assert (await talks.said("s", "t")).startswith("begun")
    assert turn.runtime_after == turn_pb2.RUNTIME_AFTER_ENDED


async def test_an_agent_that_ignores_its_limit_is_killed(
    stack: Stack, talks: Talks, runner_settings: dict[str, Any]
) -> None:
    limits = Limits(max_silence=Duration(seconds=1))
    settings = {**runner_settings, "cancel_timeout": 0.3, "close_timeout": 0.2, "terminate_timeout": 0.3}
    turn = await failed(stack, talks, settings, "demo", "hang hard", limits=limits)
    assert reason(turn) == "MAX_SILENCE"
    assert turn.runtime_after == turn_pb2.RUNTIME_AFTER_ENDED


async def test_a_turn_says_how_far_it_is(
    stack: Stack, talks: Talks, runner_settings: dict[str, Any], profiles: Path
) -> None:
    write_shell(profiles, "mute", "exec sleep 600")
    await stack.add_runner(**runner_settings, close_timeout=0.1)
    await talks.create("s", profile="mute")
    await talks.start("s", "t", "hello")

    async def starts() -> bool:
        return (await talks.turn("s", "t")).phase == TurnPhase.TURN_PHASE_STARTING_AGENT

    await eventually(starts)
    turn = await talks.turn("s", "t")
    assert turn.waiting_reason == "for the agent mute to start"
    assert turn.phase_deadline.ToSeconds() - turn.begin_time.ToSeconds() in range(55, 65)
