"""The command that prepares a workspace before it is READY (W10)."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
from pathlib import Path

import pytest
from google.protobuf.duration_pb2 import Duration
from moorage.common.v1 import provision_pb2
from moorage.workspace.v1 import workspace_pb2

from services.common import failpoints
from services.common.errors import InvalidArgument
from tests.conditions import eventually
from tests.gates import Gates
from tests.workspace.instances import Client, Machine, running
from tests.workspace.sources.archives import Entry, tar
from tests.workspace.sources.wishes import FAILED, READY, made, of_archive

Setup = provision_pb2.SetupCommand


def shell(script: str, **wish: object) -> provision_pb2.SetupCommand:
    return Setup(command=["sh", "-c", script], **wish)  # type: ignore[arg-type]


@pytest.fixture
def broken_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever comes after a command's end was kept fails."""
    monkeypatch.setitem(failpoints._active, "workspace.setup.after_result", "error")


async def test_it_finds_the_source_and_what_it_makes_stays(client: Client) -> None:
    setup = shell("cat a; echo done >&2; pwd > where")
    workspace = await made(client, setup=setup, **of_archive(data=tar([Entry("a", content=b"source\n")])))
    assert workspace.state == READY, workspace.state_reason
    assert workspace.setup == workspace_pb2.SetupResult(
        ended=workspace_pb2.ExecEnded(exit_code=0), output="source\ndone\n"
    )
    assert (Path(workspace.root) / "where").read_text().strip() == workspace.root
    [listed] = (await client.list_page()).workspaces
    assert not listed.HasField("setup")
    assert listed.spec.setup.command == setup.command
    await client.delete()
    assert not (await client.settled()).HasField("setup"), "it goes with the workspace"


async def test_its_environment_is_what_was_said(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    workspace = await made(
        client, setup=Setup(command=["env"], environment={"GREETING": "hello", "LANG": "x"})
    )
    variables = dict(line.split("=", 1) for line in workspace.setup.output.splitlines())
    assert set(variables) - {"PWD"} == {"PATH", "HOME", "GREETING", "LANG", "MOORAGE_EXEC"}
    assert (variables["GREETING"], variables["LANG"]) == ("hello", "x")


async def test_what_it_inherits_by_name(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLOUR", "green")
    async with running(machine) as (client, _):
        workspace = await made(
            client, setup=Setup(command=["sh", "-c", "echo $COLOUR"], inherit_environment=["COLOUR"])
        )
    assert workspace.setup.output == "green\n"


@pytest.mark.parametrize(
    ("setup", "ended", "reason"),
    [
        (shell("echo no room; exit 3"), {"exit_code": 3}, "ended with 3: no room"),
        (shell("kill -TERM $$"), {"signal": "SIGTERM"}, "was ended by SIGTERM"),
        (shell("kill -40 $$"), {"signal": "SIGRTMIN+6"}, "was ended by SIGRTMIN+6"),
        (
            shell("echo begun; sleep 1000", timeout=Duration(seconds=1)),
            {"timeout": workspace_pb2.ExecTimeout(after=Duration(seconds=1))},
            "lasted longer than 1 s: begun",
        ),
    ],
)
async def test_its_failure_is_the_workspaces(
    client: Client, setup: provision_pb2.SetupCommand, ended: dict[str, object], reason: str
) -> None:
    workspace = await made(client, setup=setup)
    assert (workspace.state, workspace.state_reason) == (FAILED, f"its set-up command {reason}")
    assert workspace.setup.ended == workspace_pb2.ExecEnded(**ended)  # type: ignore[arg-type]


async def test_what_cannot_be_started(client: Client) -> None:
    workspace = await made(client, setup=Setup(command=["no-such-program"]))
    assert workspace.state == FAILED
    assert "set-up command no-such-program could not be started" in workspace.state_reason


async def test_the_end_of_what_it_prints_is_kept(client: Client) -> None:
    script = r"head -c 3000000 /dev/zero | tr '\0' x; printf 'last \000\377'"
    workspace = await made(client, setup=shell(script))
    assert workspace.state == READY
    assert workspace.setup.truncated
    assert len(workspace.setup.output.encode()) <= 65536
    assert workspace.setup.output.endswith("xlast \N{REPLACEMENT CHARACTER}\N{REPLACEMENT CHARACTER}")


async def test_nothing_of_it_lives_on(client: Client) -> None:
    workspace = await made(client, setup=shell("sleep 1000 & echo $!; setsid sleep 1000 & echo $!"))
    assert workspace.state == READY
    for pid in workspace.setup.output.split():
        assert not Path("/proc", pid).exists()


async def test_a_workspace_that_is_not_wanted_any_more_ends_it(client: Client) -> None:
    spec = provision_pb2.ProvisionSpec(setup=shell("echo $$ > pid; sleep 1000"))
    root = Path((await client.provision(provision=spec)).workspace.root)

    def begun() -> bool:
        return (root / "pid").exists() and (root / "pid").read_text() != ""

    await eventually(begun, what="it runs")
    pid = (root / "pid").read_text().strip()
    await client.delete()
    assert (await client.settled()).state == workspace_pb2.WORKSPACE_STATE_DELETED
    assert not Path("/proc", pid).exists()
    assert not root.exists()


async def test_it_does_not_hold_up_removals(client: Client) -> None:
    """More workspaces than are made at a time wait for their commands; others go meanwhile."""
    await client.make("other")
    for number in range(10):
        spec = provision_pb2.ProvisionSpec(setup=shell("sleep 1000"))
        await client.provision(f"w{number}", provision=spec)
    await client.delete("other")
    assert (await client.settled("other")).state == workspace_pb2.WORKSPACE_STATE_DELETED
    await asyncio.gather(*(client.delete(f"w{number}") for number in range(10)))
    for number in range(10):
        assert (await client.settled(f"w{number}")).state == workspace_pb2.WORKSPACE_STATE_DELETED


async def test_a_successor_runs_it_again(machine: Machine) -> None:
    spec = provision_pb2.ProvisionSpec(setup=shell("echo run >> runs; test -e ../../go || sleep 1000"))
    async with running(machine) as (client, _):
        root = Path((await client.provision(provision=spec)).workspace.root)
        await eventually((root / "runs").exists, what="it runs")
        assert (await client.get()).state == workspace_pb2.WORKSPACE_STATE_PROVISIONING
    (machine.state / "go").touch()
    async with running(machine) as (client, _):
        assert (await client.settled()).state == READY
    assert (root / "runs").read_text() == "run\nrun\n"


async def test_one_whose_end_nobody_saw_is_run_again(client: Client, machine: Machine) -> None:
    spec = provision_pb2.ProvisionSpec(setup=shell("echo $$ $PPID >> runs; test -e ../../go || sleep 1000"))
    runs = Path((await client.provision(provision=spec)).workspace.root, "runs")
    await eventually(lambda: runs.exists() and runs.read_text() != "", what="it runs")
    pid, shim = runs.read_text().split()
    (machine.state / "go").touch()
    os.kill(int(shim), signal.SIGKILL)
    workspace = await client.settled()
    assert workspace.state == READY, workspace.state_reason
    assert len(runs.read_text().splitlines()) == 2
    assert not Path("/proc", pid).exists()


async def test_one_that_kills_what_watches_over_it_is_not_run_for_ever(
    client: Client, machine: Machine
) -> None:
    workspace = await made(client, setup=shell("echo run >> ../../../runs; kill -9 $PPID; sleep 1000"))
    assert workspace.state == FAILED
    assert workspace.state_reason == "it is not known how its set-up command ended, 4 times"
    assert (machine.directory / "runs").read_text() == "run\n" * 4


@pytest.mark.usefixtures("broken_off")
async def test_one_whose_end_was_kept_is_not_run_again(client: Client) -> None:
    """Nor is what it made undone, by the source it was made from."""
    archive = of_archive(data=tar([Entry("a", content=b"source")]))
    workspace = await made(client, setup=shell("echo run >> runs; cat a > b; rm a"), **archive)
    assert workspace.state == READY, workspace.state_reason
    found = {each.name: each.read_text() for each in Path(workspace.root).iterdir()}
    assert found == {"runs": "run\n", "b": "source"}


@pytest.mark.usefixtures("broken_off")
async def test_one_that_failed_is_not_run_again(client: Client, machine: Machine) -> None:
    workspace = await made(client, setup=shell("echo run >> ../../../runs; exit 3"))
    assert (workspace.state, workspace.state_reason) == (FAILED, "its set-up command ended with 3")
    assert (machine.directory / "runs").read_text() == "run\n"


async def test_what_it_made_is_made_anew_where_it_is_gone(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(failpoints._active, failpoints.ALL, f"gate:{tmp_path}/gates")
    kept = Gates(tmp_path / "gates").hold("workspace.setup.after_result")
    async with running(machine) as (client, _):
        spec = provision_pb2.ProvisionSpec(setup=shell("echo run >> ../../../runs; touch made"))
        root = Path((await client.provision(provision=spec)).workspace.root)
        await kept.reached()
        shutil.rmtree(root)
        kept.release()
        assert (await client.settled()).state == READY
    assert [each.name for each in root.iterdir()] == ["made"]
    assert (machine.directory / "runs").read_text() == "run\nrun\n"


async def test_one_that_lasts_too_long_for_the_workspace_ends(machine: Machine) -> None:
    """The time of a workspace is longer by its command's."""
    setup = shell("echo $$ > pid; sleep 1000", timeout=Duration(seconds=1))
    async with running(machine, provision_timeout=0.2) as (client, _):
        workspace = await made(client, setup=setup)
        assert workspace.state == FAILED
        pid = Path(workspace.root, "pid").read_text().strip()
        await eventually(lambda: not Path("/proc", pid).exists(), what="it is dead")


@pytest.mark.parametrize(
    ("setup", "field"),
    [
        (Setup(), "provision.setup.command"),
        (Setup(command=["x"], timeout=Duration(seconds=-1)), "provision.setup.timeout"),
        (Setup(command=["x"], timeout=Duration(seconds=86400)), "provision.setup.timeout"),
        (Setup(command=["x"], network=provision_pb2.NETWORK_POLICY_NONE), "provision.setup.network"),
        (Setup(command=["x"], environment={"A=B": "x"}), "provision.setup.environment[A=B]"),
        (
            Setup(command=["x"], inherit_environment=["MOORAGE_DATABASE_URL"]),
            "provision.setup.inherit_environment",
        ),
    ],
)
async def test_what_cannot_be_asked_for(
    client: Client, setup: provision_pb2.SetupCommand, field: str
) -> None:
    with pytest.raises(InvalidArgument) as refusal:
        await client.provision(provision=provision_pb2.ProvisionSpec(setup=setup))
    assert [each.field for each in refusal.value.violations] == [field]
