"""How a workspace's set-up command ended becomes a record of the session, once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from moorage.common.v1 import provision_pb2, record_pb2, turn_pb2
from moorage.session.v1 import session_pb2

from tests.conditions import eventually
from tests.runner.parts import Stack
from tests.runner.talks import Talks, kinds_of


def setup(script: str) -> dict[str, Any]:
    """A session whose workspace is prepared by this."""
    command = provision_pb2.SetupCommand(command=["sh", "-c", script])
    return {"provision": provision_pb2.ProvisionSpec(setup=command)}


async def test_it_is_told_in_the_first_turn_only(stack: Stack, talks: Talks) -> None:
    await stack.add_runner()
    await talks.create("s", **setup("echo prepared; echo made > file"))
    assert (await talks.run("s", "one", "say hello")).state == turn_pb2.TURN_STATE_COMPLETED
    records = await talks.records("s", "one")
    assert kinds_of(records)[:3] == ["user_message", "turn_started", "workspace_prepared"]
    prepared = records[2].body.workspace_prepared
    assert prepared == record_pb2.WorkspacePrepared(
        command=["sh", "-c", "echo prepared; echo made > file"], exit_code=0, output="prepared\n"
    )
    await talks.run("s", "two", "say again")
    await stack.runners["one"].stop()
    await stack.add_runner("another")
    await talks.run("s", "three", "say once more")
    assert kinds_of(await talks.records("s")).count("workspace_prepared") == 1


async def test_a_failed_one_fails_the_turn_and_is_told(stack: Stack, talks: Talks) -> None:
    await stack.add_runner()
    await talks.create("s", **setup("echo no room >&2; exit 3"))
    turn = await talks.run("s", "one", "say hello")
    assert (turn.state, turn.end_reason) == (turn_pb2.TURN_STATE_FAILED, turn_pb2.END_REASON_PREPARE_FAILED)
    assert "its set-up command ended with 3: no room" in turn.error.message
    records = await talks.records("s", "one")
    [prepared] = [
        each.body.workspace_prepared for each in records if each.body.HasField("workspace_prepared")
    ]
    assert (prepared.exit_code, prepared.output) == (3, "no room\n")
    await talks.run("s", "two", "say hello")
    assert kinds_of(await talks.records("s")).count("workspace_prepared") == 1


async def test_a_turn_that_was_stopped_before_leaves_it_to_the_next(
    stack: Stack, talks: Talks, tmp_path: Path
) -> None:
    await stack.add_runner()
    go = tmp_path / "go"
    await talks.create("s", **setup(f"until test -e {go}; do sleep 0.05; done; echo prepared"))
    await talks.start("s", "one", "say hello")

    async def prepares() -> bool:
        return (await talks.turn("s", "one")).phase == turn_pb2.TURN_PHASE_PREPARING_WORKSPACE

    await eventually(prepares, what="the turn waits for its workspace")
    await talks.stop("s", "one")
    assert (await talks.ended("s", "one")).state == turn_pb2.TURN_STATE_STOPPED
    go.touch()
    assert (await talks.run("s", "two", "say hello")).state == turn_pb2.TURN_STATE_COMPLETED
    assert "workspace_prepared" not in kinds_of(await talks.records("s", "one"))
    assert kinds_of(await talks.records("s", "two")).count("workspace_prepared") == 1


async def test_there_is_none_without_a_command(stack: Stack, talks: Talks) -> None:
    await stack.add_runner()
    for name, fields in {"made": {"provision": provision_pb2.ProvisionSpec()}, "supplied": {}}.items():
        await talks.create(name, **fields)
        await talks.run(name, f"turn-{name}", "say hello")
        assert "workspace_prepared" not in kinds_of(await talks.records(name))


async def test_it_is_no_part_of_what_a_new_agent_is_told(stack: Stack, talks: Talks) -> None:
    """It is about the machinery, not about the conversation."""
    await stack.add_runner()
    await talks.create("s", **setup("echo secret-of-the-machinery"))
    await talks.run("s", "one", "say hello")
    request = session_pb2.ListRecordsRequest(session_id="s", view=session_pb2.RECORD_VIEW_MESSAGES)
    shown = (await talks.stub.ListRecords(request)).records
    assert "workspace_prepared" in kinds_of(list(shown))
