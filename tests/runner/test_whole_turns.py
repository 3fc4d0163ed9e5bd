"""Turns from admission to settlement, with the demo agent and with odd ones."""

from __future__ import annotations

from pathlib import Path

import pytest
from moorage.common.v1 import turn_pb2
from moorage.common.v1.record_pb2 import ToolCallStatus
from moorage.common.v1.turn_pb2 import ApprovalPolicy

from services.common.telemetry import use_traceparent
from tests.runner.parts import Stack
from tests.runner.profiles import write_rogue
from tests.runner.talks import Talks, kinds_of


async def test_a_turn_is_carried_out_and_recorded(stack: Stack, talks: Talks) -> None:
    runner = await stack.add_runner()
    await talks.create("s")
    turn = await talks.run("s", "t", "say one two three")
    assert turn.state == turn_pb2.TURN_STATE_COMPLETED, turn
    assert turn.end_reason == turn_pb2.END_REASON_AGENT_ENDED
    assert turn.stop_reason == "end_turn"
    assert turn.runtime_after == turn_pb2.RUNTIME_AFTER_WARM
    assert turn.prompt_sent
    assert turn.usage.output_tokens == 3
    assert turn.metadata.runner_id == runner.holder
    assert turn.metadata.agent == "moorage-demo 1"
    assert turn.metadata.workspace_provider == "local"
    assert turn.metadata.resume_kind == turn_pb2.RESUME_KIND_FRESH
    records = await talks.records("s", "t")
    assert kinds_of(records)[:2] == ["user_message", "turn_started"]
    assert kinds_of(records)[-1] == "turn_ended"
    assert await talks.said("s", "t") == "one two three"


async def test_what_a_tool_did_is_recorded_in_order(stack: Stack, talks: Talks, root: Path) -> None:
    await stack.add_runner()
    await talks.create("s")
    await talks.run("s", "t", "run echo hello; touch made; pwd")
    records = await talks.records("s", "t")
    tools = [record for record in records if kinds_of([record])[0].startswith("tool")]
    assert kinds_of(tools) == ["tool_call", "tool_update", "tool_update"]
    assert tools[0].body.tool_call.title == "echo hello; touch made; pwd"
    assert [update.body.tool_update.status for update in tools[1:]] == [
        ToolCallStatus.TOOL_CALL_STATUS_IN_PROGRESS,
        ToolCallStatus.TOOL_CALL_STATUS_COMPLETED,
    ]
    assert tools[2].body.tool_update.content[0].block.text.text == f"hello\n{root}\n"
    assert (root / "made").exists()
    assert [record.turn_seq for record in records[2:-1]] == list(range(1, len(records) - 2))


@pytest.mark.parametrize(
    ("policy", "runs", "said"),
    [
        (ApprovalPolicy.APPROVAL_POLICY_ALLOW, True, "The command ended with exit code 0.\n"),
        (ApprovalPolicy.APPROVAL_POLICY_DENY, False, "The command was refused and did not run.\n"),
    ],
)
async def test_the_policy_answers_the_agents_questions(
    stack: Stack, talks: Talks, root: Path, policy: ApprovalPolicy.ValueType, runs: bool, said: str
) -> None:
    await stack.add_runner()
    await talks.create("s", approval_policy=policy)
    turn = await talks.run("s", "t", "ask to run touch made")
    assert turn.state == turn_pb2.TURN_STATE_COMPLETED
    assert (root / "made").exists() == runs
    assert await talks.said("s", "t") == said


async def test_the_agents_environment_is_what_profile_and_session_say_and_no_more(
    stack: Stack, talks: Talks, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("A_SECRET_OF_THE_HOST", "x")
    await stack.add_runner()
    await talks.create("s", environment={"GREETING": "hi there"})
    await talks.run("s", "t", "run env")
    updates = [record.body.tool_update for record in await talks.records("s", "t")]
    output = next(update.content[0].block.text.text for update in updates if update.content)
    variables = dict(line.split("=", 1) for line in output.splitlines() if "=" in line)
    assert variables["GREETING"] == "hi there"
    assert "PATH" in variables
    assert "A_SECRET_OF_THE_HOST" not in variables


async def test_the_trace_of_whoever_starts_a_turn_reaches_the_agent(stack: Stack, talks: Talks) -> None:
    await stack.add_runner()
    await talks.create("s")
    trace_id = "0af7651916cd43dd8448eb211c80319c"
    with use_traceparent(f"00-{trace_id}-b7ad6b7169203331-01"):
        await talks.start("s", "t", "run echo $TRACEPARENT\npid")
    turn = await talks.ended("s", "t")
    assert turn.metadata.trace_id == trace_id
    updates = [record.body.tool_update for record in await talks.records("s", "t")]
    environment = next(update.content[0].block.text.text for update in updates if update.content)
    assert environment.split("-")[1] == trace_id
    assert f"traceparent 00-{trace_id}-" in await talks.said("s", "t")


async def test_sessions_of_the_same_name_in_two_projects_are_two(stack: Stack, talks: Talks) -> None:
    await stack.add_runner()
    other = talks.of("other")
    for client in (talks, other):
        await client.create("s")
    await talks.start("s", "t", "say of the default project")
    await other.start("s", "t", "say of the other project")
    assert (await talks.ended("s", "t")).state == turn_pb2.TURN_STATE_COMPLETED
    assert (await other.ended("s", "t")).state == turn_pb2.TURN_STATE_COMPLETED
    assert await talks.said("s", "t") == "of the default project"
    assert await other.said("s", "t") == "of the other project"


async def test_many_small_pieces_become_few_records_and_lose_nothing(
    stack: Stack, talks: Talks, tmp_path: Path
) -> None:
    profile = write_rogue(tmp_path / "profiles", "flood", "5000")
    await stack.add_runner(profiles_directory=tmp_path / "profiles")
    await talks.create("s", profile=profile)
    turn = await talks.run("s", "t", "go")
    assert turn.state == turn_pb2.TURN_STATE_COMPLETED
    assert await talks.said("s", "t") == "".join(f"{number} " for number in range(5000))
    assert len(await talks.records("s", "t")) < 500


async def test_noise_and_what_no_schema_knows_disturb_nothing(
    stack: Stack, talks: Talks, tmp_path: Path
) -> None:
    profiles = tmp_path / "profiles"
    names = [write_rogue(profiles, name) for name in ("noise", "unknown", "late")]
    await stack.add_runner(profiles_directory=profiles)
    for name in names:
        await talks.create(name, profile=name)
        assert (await talks.run(name, "t", "go")).state == turn_pb2.TURN_STATE_COMPLETED
    assert await talks.said("noise", "t") == "onetwo"
    assert "raw_json" in kinds_of(await talks.records("unknown", "t"))
    assert (await talks.said("late", "t")).startswith("in time")


async def test_lone_surrogates_are_replaced_and_nothing_is_lost(
    stack: Stack, talks: Talks, tmp_path: Path
) -> None:
    profile = write_rogue(tmp_path / "profiles", "surrogates")
    await stack.add_runner(profiles_directory=tmp_path / "profiles")
    await talks.create("s", profile=profile)
    turn = await talks.run("s", "t", "go")
    assert turn.state == turn_pb2.TURN_STATE_COMPLETED
    assert await talks.said("s", "t") == "lone � and �, pair 😀"


async def test_text_of_megabytes_arrives_in_pieces(stack: Stack, talks: Talks, tmp_path: Path) -> None:
    profile = write_rogue(tmp_path / "profiles", "long_lines", "1", "3")
    await stack.add_runner(profiles_directory=tmp_path / "profiles")
    await talks.create("s", profile=profile)
    turn = await talks.run("s", "t", "go")
    assert turn.state == turn_pb2.TURN_STATE_COMPLETED, turn
    assert len(await talks.said("s", "t")) == 4 * 1024 * 1024
