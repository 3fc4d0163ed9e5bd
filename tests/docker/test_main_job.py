"""Sessions in containers through all four services: what they were made for, and what is left afterwards (W4, W5, T9)."""

from __future__ import annotations

from pathlib import Path

import pytest
from moorage.common.v1 import binding_pb2, turn_pb2
from moorage.session.v1 import session_pb2

from tests.conditions import eventually
from tests.docker.harbour import BRIDGE, DEMO, NONE, Harbour, refused

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(180)]

COMPLETED = turn_pb2.TURN_STATE_COMPLETED
CLOSED = session_pb2.SESSION_STATE_CLOSED


async def test_a_prompt_runs_in_a_container_of_which_nothing_is_left(harbour: Harbour) -> None:
    talks = harbour.talks
    made = await harbour.create("job")
    workspace = made.workspace
    assert (workspace.state, workspace.provider, workspace.image) == ("READY", "docker", DEMO)
    assert workspace.network == NONE
    assert made.binding.origin == binding_pb2.BINDING_ORIGIN_PROVISIONED
    assert (made.binding.cloud.provider, made.binding.cloud.workspace_ref) == (
        "docker",
        workspace.workspace_id,
    )
    assert made.placement == binding_pb2.PLACEMENT_CLOUD_WORKSPACE

    turn = await talks.run("job", "t1", "run pwd\nrun echo 'made inside' > hello.txt\nrun id -u")
    assert turn.state == COMPLETED
    shown = str(await talks.records("job", "t1"))
    assert workspace.root in shown
    assert (Path(workspace.root) / "hello.txt").read_text() == "made inside\n"
    metadata = turn.metadata
    assert (metadata.binding_kind, metadata.placement) == ("cloud", binding_pb2.PLACEMENT_CLOUD_WORKSPACE)
    assert (metadata.workspace_provider, metadata.workspace_ref) == ("docker", workspace.workspace_id)
    assert harbour.container(workspace.workspace_id).status == "running"

    closed = await talks.close("job")
    assert closed.state == CLOSED
    harbour.check_gone(workspace.workspace_id, workspace.root)
    assert (await harbour.workspace("job")).state == "DELETED"
    await talks.delete("job")
    assert (await refused(talks.session("job"))).reason_name == "SESSION_NOT_FOUND"


async def test_an_agent_stays_warm_reads_and_writes_and_has_terminals_in_its_container(
    harbour: Harbour,
) -> None:
    talks = harbour.talks
    workspace = (await harbour.create("warm")).workspace
    root = Path(workspace.root)
    await talks.run("warm", "t1", f"write {root}/notes.txt the milk\nremember the milk")
    assert (root / "notes.txt").read_text() == "the milk\n"
    turn = await talks.run("warm", "t2", f"recall\nread {root}/notes.txt\nterminal cat notes.txt; hostname")
    assert turn.metadata.resume_kind == turn_pb2.RESUME_KIND_WARM
    shown = str(await talks.records("warm", "t2"))
    assert "the milk" in await talks.said("warm", "t2")
    # The terminal was one of the container's.
    assert harbour.container(workspace.workspace_id).short_id in shown
    # Who may write there may read what was written through the service, and remove it.
    await talks.run("warm", "t3", "run rm notes.txt")
    assert not (root / "notes.txt").exists()
    await talks.close("warm")
    harbour.check_gone(workspace.workspace_id, workspace.root)


async def test_a_supplied_directory_is_worked_on_and_stays(harbour: Harbour) -> None:
    directory = harbour.supplied("app")
    spec = {"source": {"path": {"directory": str(directory)}}}
    workspace = (await harbour.create("mount", spec=spec)).workspace
    assert workspace.root == str(directory)
    turn = await harbour.talks.run("mount", "t1", "run echo changed > file")
    assert turn.state == COMPLETED
    assert (directory / "file").read_text() == "changed\n"
    await harbour.talks.close("mount")
    assert harbour.containers(workspace.workspace_id) == []
    assert (directory / "file").read_text() == "changed\n"


async def test_what_the_instance_does_not_allow_is_refused_by_the_fields_of_the_call(
    harbour: Harbour,
) -> None:
    before = len(harbour.containers())
    for field, spec in (
        ("provision.image", {"image": "somebody/else:latest"}),
        ("provision.limits.memory_bytes", {"limits": {"memory_bytes": 1 << 50}}),
        ("provision.limits.cpus", {"limits": {"cpus": -1.0}}),
        ("provision.source.path.directory", {"source": {"path": {"directory": "/etc"}}}),
    ):
        refusal = await refused(harbour.create("refused", spec=spec))
        assert [violation.field for violation in refusal.violations] == [field]
    assert len(harbour.containers()) == before


async def test_a_network_is_given_where_it_is_asked_for(harbour: Harbour) -> None:
    for name, spec, expected in (("dark", {}, NONE), ("bridged", {"network": BRIDGE}, BRIDGE)):
        workspace = (await harbour.create(name, spec=spec)).workspace
        assert workspace.network == expected
        turn = await harbour.talks.run(name, "t1", "run ls /sys/class/net")
        assert turn.state == COMPLETED
        shown = str(await harbour.talks.records(name, "t1"))
        assert ("eth0" in shown) is (expected == BRIDGE)
        await harbour.talks.close(name)


async def test_a_turn_waits_for_its_workspace_and_says_so(harbour: Harbour) -> None:
    waits = ["sh", "-c", "until test -e go; do sleep 0.1; done; echo set up"]
    directory = harbour.supplied("slow")
    spec = {"source": {"path": {"directory": str(directory)}}, "setup": {"command": waits}}
    made = await harbour.create("slow", spec=spec, wait_ready=False)
    assert made.workspace.state == "PROVISIONING"
    await harbour.talks.start("slow", "t1", "say at last")

    async def waits_for_it() -> bool:
        turn = await harbour.talks.turn("slow", "t1")
        is_preparing = turn.phase == turn_pb2.TURN_PHASE_PREPARING_WORKSPACE
        return is_preparing and "PROVISIONING" in turn.waiting_reason

    await eventually(waits_for_it, within=30)
    (directory / "go").touch()
    turn = await harbour.talks.ended("slow", "t1")
    assert turn.state == COMPLETED
    assert "at last" in await harbour.talks.said("slow", "t1")
    await harbour.talks.close("slow")


async def test_what_prepared_the_container_is_told_once_by_the_transcript(harbour: Harbour) -> None:
    talks = harbour.talks
    setup = {"command": ["sh", "-c", "id -u > prepared; echo all set; echo minor trouble >&2"]}
    workspace = (await harbour.create("prepared", spec={"setup": setup})).workspace
    for turn_id in ("t1", "t2"):
        assert (await talks.run("prepared", turn_id, "run cat prepared")).state == COMPLETED
    records = await talks.records("prepared")
    [record] = [each for each in records if each.body.HasField("workspace_prepared")]
    assert record.turn_id == "t1"
    prepared = record.body.workspace_prepared
    assert list(prepared.command) == setup["command"]
    assert prepared.WhichOneof("ended") == "exit_code"
    assert prepared.exit_code == 0
    assert sorted(prepared.output.splitlines()) == ["all set", "minor trouble"]
    assert (Path(workspace.root) / "prepared").read_text() != "0\n"
    await talks.close("prepared")


async def test_deleting_an_open_session_removes_container_directory_and_session(harbour: Harbour) -> None:
    talks = harbour.talks
    made = await harbour.create("thrown-away")
    assert (await talks.run("thrown-away", "t1", "run echo made > file")).state == COMPLETED
    assert harbour.containers(made.workspace.workspace_id)
    assert (await talks.session("thrown-away")).state == session_pb2.SESSION_STATE_OPEN
    await talks.delete("thrown-away")
    harbour.check_gone(made.workspace.workspace_id, made.workspace.root)
    assert (await refused(talks.session("thrown-away"))).reason_name == "SESSION_NOT_FOUND"
    assert (await refused(talks.records("thrown-away"))).reason_name == "SESSION_NOT_FOUND"


async def test_a_workspace_that_cannot_be_made_fails_its_turn_with_the_reason(harbour: Harbour) -> None:
    spec = {"setup": {"command": ["sh", "-c", "exit 7"]}}
    made = await harbour.create("broken", spec=spec)
    assert made.workspace.state == "FAILED"
    turn = await harbour.talks.run("broken", "t1", "say never")
    assert (turn.state, turn.end_reason) == (
        turn_pb2.TURN_STATE_FAILED,
        turn_pb2.END_REASON_PREPARE_FAILED,
    )
    assert made.workspace.state_reason in turn.error.message
    assert not turn.prompt_sent
    await harbour.talks.close("broken")
    harbour.check_gone(made.workspace.workspace_id, made.workspace.root)
