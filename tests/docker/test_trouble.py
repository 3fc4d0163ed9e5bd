"""What goes wrong with a container or its runner while an agent works in it, and what the turn then says (F6, F9, S9)."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from moorage.common.v1 import turn_pb2
from moorage.session.v1 import session_pb2

from tests.conditions import eventually
from tests.docker.harbour import Harbour, refused
from tests.runner.profiles import ROGUES, write_profile

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(180)]

STOPPED, FAILED, LOST = turn_pb2.TURN_STATE_STOPPED, turn_pb2.TURN_STATE_FAILED, turn_pb2.TURN_STATE_LOST
LEAVES_SOME = "run setsid sleep 600 & setsid setsid sleep 600 & touch begun; sleep 600"


async def test_a_stop_reaches_the_agent_and_all_it_started_in_the_container(harbour: Harbour) -> None:
    talks = harbour.talks
    workspace = (await harbour.create("stop")).workspace
    await talks.start("stop", "t1", LEAVES_SOME)
    await begun(workspace)
    await talks.stop("stop", "t1")
    turn = await talks.ended("stop", "t1")
    assert (turn.state, turn.stop_method) == (STOPPED, turn_pb2.STOP_METHOD_AGENT_CONFIRMED)
    assert turn.runtime_after == turn_pb2.RUNTIME_AFTER_WARM
    # The agent lives on, and nothing else.
    assert all("sleep" not in command for command in harbour.processes(workspace.workspace_id))
    assert (
        await talks.run("stop", "t2", "say still there")
    ).metadata.resume_kind == turn_pb2.RESUME_KIND_WARM
    await talks.close("stop")


async def test_an_agent_that_hears_nothing_is_killed_in_its_container(harbour: Harbour) -> None:
    talks = harbour.talks
    workspace = (await harbour.create("deaf")).workspace
    await talks.start("deaf", "t1", "run setsid sleep 600 & true\nsay begun\nhang hard")
    await talks.says("deaf", "t1", "begun")
    await talks.stop("deaf", "t1")
    turn = await talks.ended("deaf", "t1", within=60)
    assert (turn.state, turn.stop_method) == (STOPPED, turn_pb2.STOP_METHOD_KILLED)
    await harbour.until_empty(workspace.workspace_id)
    # The container stays: the next turn finds what the first one left.
    assert (await talks.run("deaf", "t2", "say again")).state == turn_pb2.TURN_STATE_COMPLETED
    await talks.close("deaf")


async def test_the_fence_reaches_the_container_of_a_runner_that_was_killed(harbour: Harbour) -> None:
    talks = harbour.talks
    workspace = (await harbour.create("killed")).workspace
    await talks.start("killed", "t1", LEAVES_SOME)
    await begun(workspace)
    assert harbour.processes(workspace.workspace_id)
    await harbour.whole.kill("runner")
    turn = await talks.ended("killed", "t1", within=60)
    assert (turn.state, turn.end_reason) == (LOST, turn_pb2.END_REASON_LEASE_LOST)
    # Whoever is told so is told the truth.
    assert harbour.processes(workspace.workspace_id) == []
    await harbour.whole.start("runner")
    again = await talks.run("killed", "t2", "run test -d . && echo here")
    assert again.state == turn_pb2.TURN_STATE_COMPLETED
    await talks.close("killed")


async def test_a_turn_whose_memory_was_used_up_says_so(harbour: Harbour) -> None:
    directory = harbour.supplied("hungry")
    shutil.copytree(ROGUES, directory / "rogues", ignore=shutil.ignore_patterns("__pycache__"))
    eater = ["python3", "-I", "-S", f"{directory}/rogues", "eats_memory"]
    profiles = harbour.whole.root.parent / "profiles"
    write_profile(profiles, "hungry", "false", container_command=eater)
    await harbour.whole.end("runner")
    await harbour.whole.start("runner")
    spec = {
        "source": {"path": {"directory": str(directory)}},
        "limits": {"memory_bytes": 64 * 2**20},
    }
    await harbour.create("hungry", spec=spec, profile="hungry")
    turn = await harbour.talks.run("hungry", "t1", "eat")
    assert (turn.state, turn.end_reason) == (FAILED, turn_pb2.END_REASON_OUT_OF_MEMORY)
    assert "memory" in turn.error.message
    assert "hungry" in await harbour.talks.said("hungry", "t1")
    await harbour.talks.close("hungry")
    assert (directory / "rogues").is_dir()


async def test_a_container_that_somebody_removes_under_the_agent(harbour: Harbour) -> None:
    talks = harbour.talks
    workspace = (await harbour.create("removed")).workspace
    await talks.start("removed", "t1", "say begun\nsleep 600")
    await talks.says("removed", "t1", "begun")
    harbour.container(workspace.workspace_id).remove(force=True)
    turn = await talks.ended("removed", "t1")
    assert (turn.state, turn.end_reason) == (FAILED, turn_pb2.END_REASON_WORKSPACE_LOST)
    found = await harbour.workspace("removed")
    assert found.state == "LOST"
    assert found.state_reason
    again = await talks.run("removed", "t2", "say never")
    assert (again.state, again.end_reason) == (FAILED, turn_pb2.END_REASON_WORKSPACE_LOST)
    assert found.state_reason in again.error.message
    assert not again.prompt_sent
    # What the agent had written is there until somebody closes the session.
    assert Path(workspace.root).is_dir()
    assert (await talks.close("removed")).state == session_pb2.SESSION_STATE_CLOSED
    harbour.check_gone(workspace.workspace_id, workspace.root)


async def test_a_container_that_somebody_stops_is_started_again_for_the_next_turn(harbour: Harbour) -> None:
    talks = harbour.talks
    workspace = (await harbour.create("stopped")).workspace
    await talks.start("stopped", "t1", "run echo kept > file\nsay begun\nsleep 600")
    await talks.says("stopped", "t1", "begun")
    harbour.container(workspace.workspace_id).kill()
    turn = await talks.ended("stopped", "t1")
    assert (turn.state, turn.end_reason) == (FAILED, turn_pb2.END_REASON_WORKSPACE_LOST)
    assert "its container stopped" in turn.error.message
    assert "LOST" not in turn.error.message
    again = await talks.run("stopped", "t2", "run cat file")
    assert again.state == turn_pb2.TURN_STATE_COMPLETED
    assert "kept" in str(await talks.records("stopped", "t2"))
    assert (await harbour.workspace("stopped")).state == "READY"
    await talks.close("stopped")


async def test_closing_works_where_no_more_containers_are_made(harbour: Harbour) -> None:
    talks = harbour.talks
    workspace = (await harbour.create("shut")).workspace
    await talks.run("shut", "t1", "run echo kept > file")
    await harbour.whole.end("workspace")
    await harbour.whole.start("workspace", "--no-docker-enabled")
    try:

        async def refuses() -> bool:
            # The session service may still believe that nobody serves there.
            return (await refused(harbour.create("refused"))).reason_name == "PROVIDER_UNAVAILABLE"

        await eventually(refuses, within=30)
        assert (await talks.close("shut")).state == session_pb2.SESSION_STATE_CLOSED
        harbour.check_gone(workspace.workspace_id, workspace.root)
    finally:
        await harbour.whole.end("workspace")
        await harbour.whole.start("workspace")


async def begun(workspace: session_pb2.SessionWorkspace) -> None:
    """Return when the command of the turn runs."""
    await eventually((Path(workspace.root) / "begun").exists, within=30, what="the command runs")
