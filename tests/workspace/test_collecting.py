"""The collector against directories: orphans, ghosts, and what is none of its business (W1, W3, W8)."""

from __future__ import annotations

import asyncio
import contextlib
import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from moorage.common.v1 import provision_pb2
from moorage.workspace.v1 import workspace_pb2

from services.common import failpoints
from services.common.clock import ManualClock
from services.common.errors import MoorageError
from services.workspace import worker
from services.workspace.collector.collector import Collector, Pace
from services.workspace.collector.gauges import Gauges
from services.workspace.providers.registry import Registry
from tests.conditions import eventually
from tests.databases import execute
from tests.workspace.garbage import told
from tests.workspace.instances import Client, Holder, Machine, duration, running, running_owner
from tests.workspace.processes import is_alive
from tests.workspace.real import started

LOST = workspace_pb2.WORKSPACE_STATE_LOST
READY = workspace_pb2.WORKSPACE_STATE_READY
DELETED = workspace_pb2.WORKSPACE_STATE_DELETED


async def _becomes(machine: Machine, state: str, workspace_id: str = "w1") -> None:
    """As if it had come to this state long ago."""
    await execute(
        machine.database_url,
        "UPDATE workspace.workspaces SET state = $1 WHERE workspace_id = $2",
        state,
        workspace_id,
    )


async def test_where_all_is_well_there_is_nothing_to_collect(client: Client, machine: Machine) -> None:
    await client.make("w1")
    await client.adopt(machine.supplied(), "w2")
    assert not (await client.collect()).garbage
    assert (await client.get("w1")).state == (await client.get("w2")).state == READY


@pytest.mark.parametrize("state", ["DELETED", "FAILED"])
async def test_a_directory_that_came_too_late_is_removed(
    client: Client, machine: Machine, state: str
) -> None:
    root = Path((await client.make()).root)
    (root / "file").write_text("x")
    await _becomes(machine, state)
    dry = await client.collect(dry_run=True)
    assert told(dry) == [("orphan", "w1", False)]
    assert (dry.garbage[0].resource, dry.garbage[0].provider) == (str(root), "local")
    assert root.exists()
    assert told(await client.collect()) == [("orphan", "w1", True)]
    assert not any(root.parent.iterdir()), "the label is gone too"
    assert not (await client.collect()).garbage


async def test_remains_without_a_row_are_removed_and_their_name_is_spent(
    client: Client, machine: Machine
) -> None:
    root = Path((await client.make()).root)
    await execute(machine.database_url, "DELETE FROM workspace.workspaces")
    assert told(await client.collect(dry_run=True)) == [("orphan", "w1", False)]
    with pytest.raises(MoorageError, match="does not exist"):
        await client.get()
    assert told(await client.collect()) == [("orphan", "w1", True)]
    assert not root.exists()
    assert (await client.get()).state == DELETED
    with pytest.raises(MoorageError) as caught:
        await client.provision(provision={})
    assert caught.value.reason_name == "WORKSPACE_ALREADY_EXISTS"


async def test_a_label_without_its_directory_is_removed(client: Client, machine: Machine) -> None:
    root = Path((await client.make()).root)
    root.rmdir()
    await _becomes(machine, "DELETED")
    assert told(await client.collect()) == [("orphan", "w1", True)]
    assert not any(root.parent.iterdir())


async def test_what_vanished_is_lost_and_its_execs_are_told_why(
    client: Client, machine: Machine, holder: Holder
) -> None:
    root = Path((await client.make()).root)
    async with client.exec(await holder.acquire(), "sleep", "600") as stream:
        shutil.rmtree(root)
        assert told(await client.collect(dry_run=True)) == [("ghost", "w1", False)]
        assert (await client.get()).state == READY
        assert told(await client.collect()) == [("ghost", "w1", True)]
        error = (await stream.result()).error
    assert error is not None
    assert (error.reason_name, error.metadata["state"]) == ("WORKSPACE_NOT_READY", "LOST")
    assert not is_alive(stream.pid)
    lost = await client.get()
    assert lost.state == LOST
    assert "No such file" in lost.state_reason
    assert not (await client.collect()).garbage


async def test_a_lost_directory_that_shows_up_is_kept_until_somebody_deletes_it(
    client: Client, machine: Machine
) -> None:
    root = Path((await client.make()).root)
    (root / "work").write_text("of many days")
    away = root.rename(machine.directory / "away")
    assert told(await client.collect()) == [("ghost", "w1", True)]
    away.rename(root)
    assert not (await client.collect()).garbage
    assert (root / "work").read_text() == "of many days"
    await client.delete()
    assert (await client.settled()).state == DELETED
    assert not root.exists()


async def test_what_is_not_ours_is_not_touched(client: Client, machine: Machine) -> None:
    made = Path((await client.make()).root)
    supplied = machine.supplied()
    await client.adopt(supplied, "w2")
    await _becomes(machine, "DELETED", "w2")
    (supplied / "file").write_text("x")
    label = json.loads((made.parent / "w1.json").read_text())
    strangers = {
        "theirs": {**label, "workspace_id": "theirs", "instance_id": "another"},
        "elsewhere": {**label, "workspace_id": "elsewhere", "deployment": "another"},
        "misnamed": {**label, "workspace_id": "w9"},
        "contained": {**label, "workspace_id": "contained", "provider": "moon"},
    }
    for name, content in strangers.items():
        (made.parent / name).mkdir()
        (made.parent / f"{name}.json").write_text(json.dumps(content))
    (made.parent / "unlabelled").mkdir()
    (made.parent / "linked.json").symlink_to(made.parent / "w1.json")
    (machine.state / "project").symlink_to(made.parent)
    before = sorted(map(str, machine.state.rglob("*")))
    assert not (await client.collect()).garbage
    assert sorted(map(str, machine.state.rglob("*"))) == before
    assert (supplied / "file").read_text() == "x"


async def test_instances_that_share_a_directory_leave_each_other_alone(machine: Machine) -> None:
    other = replace(machine, instance_id="other")
    async with running(machine) as (one, _), running(other) as (two, _):
        roots = Path((await one.make("w1")).root), Path((await two.make("w2")).root)
        await _becomes(machine, "DELETED", "w1")
        await _becomes(machine, "DELETED", "w2")
        assert told(await one.collect()) == [("orphan", "w1", True)]
        assert [root.exists() for root in roots] == [False, True]
        assert told(await two.collect()) == [("orphan", "w2", True)]
        assert not roots[1].exists()


async def test_a_start_collects_what_was_left_behind(machine: Machine) -> None:
    async with running(machine) as (client, _):
        root = Path((await client.make()).root)
    await _becomes(machine, "DELETED")
    async with running(machine):
        await eventually(lambda: not root.exists())


async def test_passes_follow_each_other(machine: Machine) -> None:
    async with running(machine, collect_interval=0.05) as (client, _):
        root = Path((await client.make()).root)
        await _becomes(machine, "FAILED")
        await eventually(lambda: not root.exists())


async def test_passes_keep_their_distance_however_often_it_is_woken(machine: Machine) -> None:
    clock = ManualClock()
    # Without a provider it needs neither of them.
    nothing: Any = None
    async with running(machine) as (_, service):
        collector = Collector(
            service.instance,
            Registry([]),
            nothing,
            nothing,
            Gauges(machine.instance_id, clock),
            Pace(interval=60.0, retry=60.0, least=5.0),
            clock,
        )
        passing = asyncio.create_task(collector.run())
        for passes in (1, 2, 3):
            await clock.until_sleeping()
            collector.wake()
            await clock.advance(4.0)
            assert collector.passes == passes
            await clock.advance(1.0)
        passing.cancel()


async def test_what_a_pass_marks_is_removed_beside_the_rest_of_it(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    # So that nobody finds it by chance.
    monkeypatch.setattr(worker, "_LONGEST_LOOK", 3600.0)
    gate = machine.directory / "go"
    async with running(machine) as (client, _):
        await client.provision(provision=provision_pb2.ProvisionSpec(ttl=duration(60)))
        root = Path((await client.settled()).root)
        await execute(
            machine.database_url,
            "UPDATE workspace.workspaces SET created_at = created_at - interval '2 minutes'",
        )
        monkeypatch.setitem(failpoints._active, "workspace.collect.local.after_survey", f"pause:{gate}")
        passing = asyncio.create_task(client.collect())
        await eventually(lambda: not root.exists())
        assert not passing.done()
        gate.touch()
        assert told(await passing) == [("expired", "w1", True)]


async def test_what_is_left_of_one_that_was_not_made_in_time_goes_at_once(
    client: Client, machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody is at work on it then, and the next pass would be in a minute."""
    monkeypatch.setitem(failpoints._active, "workspace.provision.after_make", "error")
    root = machine.state / "default" / "w1"
    await client.provision(provision=provision_pb2.ProvisionSpec())
    await eventually(root.exists)
    await execute(
        machine.database_url,
        """
        UPDATE workspace.workspaces
        SET due_at = clock_timestamp() + interval '1 hour', deadline = clock_timestamp()
        """,
    )
    await eventually(lambda: not root.exists())
    assert (await client.get()).state == workspace_pb2.WORKSPACE_STATE_FAILED


async def test_one_pass_at_a_time_deals_with_each_thing_once(client: Client, machine: Machine) -> None:
    for number in range(5):
        await client.make(f"w{number}")
    await execute(machine.database_url, "UPDATE workspace.workspaces SET state = 'FAILED'")
    answers = await asyncio.gather(*(client.collect() for _ in range(8)))
    assert sorted(found for answer in answers for found in told(answer)) == [
        ("orphan", f"w{number}", True) for number in range(5)
    ]


async def test_a_link_in_the_place_of_an_orphan_leads_nowhere(client: Client, machine: Machine) -> None:
    root = Path((await client.make()).root)
    await _becomes(machine, "FAILED")
    root.rmdir()
    root.symlink_to(machine.root)
    (machine.root / "file").write_text("x")
    assert told(await client.collect()) == [("orphan", "w1", True)]
    assert (machine.root / "file").read_text() == "x"


async def test_a_workspace_made_during_a_pass_is_no_garbage(machine: Machine) -> None:
    gate = machine.directory / "go"
    async with started(
        machine, MOORAGE_FAILPOINTS=f"workspace.collect.local.after_survey=pause:{gate}"
    ) as service:
        client = await service.client()
        passing = asyncio.create_task(client.collect())
        await eventually(lambda: gate.with_name("go.reached").exists())
        made = await client.make()
        assert made.state == READY
        gate.touch()
        assert not (await passing).garbage
        assert (await client.get()).state == READY
        assert Path(made.root).is_dir()


async def test_remains_that_a_workspace_has_become_during_a_pass_are_kept(machine: Machine) -> None:
    """Whoever asks for a workspace of that name is given what is there, as its label says whose it is."""
    gate = machine.directory / "go"
    pause = f"workspace.collect.before_discard=pause:{gate}"
    async with started(machine, MOORAGE_FAILPOINTS=pause) as service:
        client = await service.client()
        root = Path((await client.make()).root)
        (root / "file").write_text("x")
        await execute(machine.database_url, "DELETE FROM workspace.workspaces")
        passing = asyncio.create_task(client.collect())
        await eventually(lambda: gate.with_name("go.reached").exists())
        assert (await client.make()).state == READY
        gate.touch()
        assert not (await passing).garbage
        assert (await client.get()).state == READY
        assert (root / "file").read_text() == "x"


async def test_an_instance_without_its_lease_collects_nothing(client: Client, machine: Machine) -> None:
    root = Path((await client.make()).root)
    await _becomes(machine, "FAILED")
    async with started(machine) as second:
        await eventually(lambda: "serving" in second.events(), within=20)
        endpoint = await second.endpoint()
        with pytest.raises(MoorageError) as caught:
            await Client.at(endpoint).collect()
    assert caught.value.reason_name == "DEPENDENCY_UNAVAILABLE"
    assert root.exists()


async def test_it_goes_on_while_owner_is_away(database_url: str, tmp_path: Path) -> None:
    """As long as the lease lasts: afterwards another start may hold it."""
    async with contextlib.AsyncExitStack() as owner:
        address = await owner.enter_async_context(running_owner(database_url))
        machine = Machine(database_url, address, tmp_path)
        machine.root.mkdir()
        async with running(machine) as (client, _):
            root = Path((await client.make()).root)
            await _becomes(machine, "FAILED")
            await owner.aclose()
            assert told(await client.collect()) == [("orphan", "w1", True)]
            assert not root.exists()


async def test_only_what_was_asked_for_is_looked_at(client: Client, machine: Machine) -> None:
    await client.make()
    await _becomes(machine, "FAILED")
    with pytest.raises(MoorageError) as caught:
        await client.collect(provider="balloon")
    assert caught.value.reason_name == "PROVIDER_UNAVAILABLE"
    assert told(await client.collect(provider="local")) == [("orphan", "w1", True)]
