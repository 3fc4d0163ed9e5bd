"""The collector against a real engine: what it removes, what it leaves, and what it concludes from silence (W3, W8)."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest
from moorage.workspace.v1 import workspace_pb2

from services.common.errors import MoorageError
from services.workspace.docker.labels import PREFIX
from tests.conditions import eventually
from tests.databases import execute
from tests.faults.wharf import Wharf
from tests.workspace.garbage import told

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(120)]


async def _becomes(wharf: Wharf, workspace_id: str, state: str) -> None:
    await execute(
        wharf.machine.database_url,
        "UPDATE workspace.workspaces SET state = $2, state_reason = 'as a test wants it' WHERE workspace_id = $1",
        workspace_id,
        state,
    )


async def _cause(wharf: Wharf) -> str:
    """Why no containers can be made; empty when they can."""
    answer = await wharf.client.stub.ListProviders(workspace_pb2.ListProvidersRequest())
    return next(each.unavailable_cause for each in answer.providers if each.name == "docker")


async def test_only_what_nobody_can_need_is_removed(ground: Wharf) -> None:
    for workspace_id in ("live", "gone", "failed", "lost"):
        assert (await ground.make(workspace_id)).state == workspace_pb2.WORKSPACE_STATE_READY
    await _becomes(ground, "gone", "DELETED")
    await _becomes(ground, "failed", "FAILED")
    await _becomes(ground, "lost", "LOST")
    labels = await ground.labels("live")
    await ground.put("stale", replace(labels, generation=0).to_engine())
    await ground.put("unknown", (await ground.labels("unknown")).to_engine())
    await ground.put("next", replace(labels, generation=2).to_engine())
    # Whoever may ask the engine may say what no row can.
    await ground.put("odd", {**labels.to_engine(), f"{PREFIX}workspace": "li\0ve"})
    await ground.put("long", {**labels.to_engine(), f"{PREFIX}generation": "9" * 5000})
    theirs = [replace(labels, deployment="another"), replace(labels, instance="another")]
    kept = [await ground.put(f"theirs{number}", each.to_engine()) for number, each in enumerate(theirs)]
    dry = told(await ground.client.collect(dry_run=True))
    expected = ["", "failed", "failed", "gone", "gone", "live", "live", "lost", "unknown"]
    assert sorted(dry) == [("orphan", each, False) for each in expected]
    assert sorted(told(await ground.client.collect())) == [("orphan", each, True) for each in expected]
    # The one of the next generation may be made just now; the row will say so.
    assert sorted((await ground.containers()).values()) == ["live", "live", "live"]
    assert ground.entries() == ground.made("live", "lost")
    assert all([await ground.exists(each) for each in kept])
    assert not (await ground.client.collect()).garbage
    await ground.client.delete("lost")
    await ground.settled("lost")
    assert ground.entries() == ground.made("live")


async def test_a_container_that_somebody_removed_is_noticed_and_its_directory_kept(ground: Wharf) -> None:
    await ground.make("w1")
    [container] = await ground.containers()
    await ground.put("stale", (await ground.labels("w1", generation=0)).to_engine())
    await asyncio.to_thread(ground.remove, container)
    assert told(await ground.client.collect()) == [("orphan", "w1", True), ("ghost", "w1", True)]
    assert (await ground.row("w1"))["state"] == "LOST"
    assert ground.entries() == ground.made("w1")


async def test_nothing_follows_from_an_engine_that_says_nothing(ground: Wharf) -> None:
    await ground.make("w1")
    await ground.put("unknown", (await ground.labels("unknown")).to_engine())
    ground.engine.pause()
    try:
        await _hears_nothing(ground)
    finally:
        ground.engine.resume()
    await ground.engine.kill()
    await _hears_nothing(ground)
    await ground.engine.start()
    await eventually(lambda: _is_back(ground), within=30)
    assert told(await ground.client.collect()) in ([("orphan", "unknown", True)], [])
    await ground.judge()


async def test_an_engine_that_falls_silent_costs_a_pass_its_patience_once(ground: Wharf) -> None:
    """The first thing that it says nothing about is told, and the rest is for the next pass."""
    unknown = [f"unknown{number}" for number in range(3)]
    for each in unknown:
        await ground.put(each, (await ground.labels(each)).to_engine())
    gate = ground.gates.hold("workspace.collect.docker.after_survey")
    passing = asyncio.create_task(ground.client.collect(provider="docker"))
    await gate.reached()
    ground.engine.pause()
    try:
        gate.release()
        answer = await passing
    finally:
        ground.engine.resume()
    [(kind, workspace_id, done)] = told(answer)
    assert (kind, workspace_id in unknown, done) == ("orphan", True, False)
    assert "does not answer" in {each.provider: each.cause for each in answer.unasked}["docker"]
    await eventually(lambda: _is_empty(ground), within=30, what="the next pass removes them all")


async def test_a_provider_that_takes_its_time_holds_up_no_other(ground: Wharf) -> None:
    root = Path((await ground.client.make("w1")).root)
    await _becomes(ground, "w1", "FAILED")
    gate = ground.gates.hold("workspace.collect.docker.after_survey")
    passing = asyncio.create_task(ground.client.collect())
    await gate.reached()
    await eventually(lambda: not root.exists(), what="the other provider's orphan is removed")
    assert not (await ground.client.collect(provider="local")).garbage
    assert not passing.done()
    gate.release()
    assert told(await passing) == [("orphan", "w1", True)]


async def test_what_there_is_is_looked_at_when_the_engine_is_back(ground: Wharf) -> None:
    """The next pass would be in a minute; that it is back is noticed before."""
    await ground.put("unknown", (await ground.labels("unknown")).to_engine())
    await ground.engine.kill()
    await _finds_it_away(ground)
    await ground.engine.start()
    await eventually(lambda: _is_empty(ground), within=30, what="the orphan is removed")


async def test_a_directory_stays_until_its_container_is_known_to_be_gone(ground: Wharf) -> None:
    await ground.make("w1")
    (ground.machine.state / "default" / "w1" / "work").write_text("of many days")
    await ground.engine.kill()
    await ground.client.delete("w1")
    await ground.noticed("w1")
    assert (await ground.row("w1"))["state"] == "DELETING"
    assert ground.entries() == ground.made("w1")
    assert not (await ground.client.collect()).garbage
    assert (ground.machine.state / "default" / "w1" / "work").exists()
    await ground.engine.start()
    assert (await ground.settled("w1")).state == workspace_pb2.WORKSPACE_STATE_DELETED
    await ground.judge()


async def test_what_was_made_is_removed_where_nothing_is_made_any_more(ground: Wharf) -> None:
    await ground.make("w1")
    await ground.make("w2")
    await ground.service.kill()
    await ground.start("--no-docker-enabled")
    with pytest.raises(MoorageError) as caught:
        await ground.ask("w3")
    assert caught.value.reason_name == "PROVIDER_UNAVAILABLE"
    await ground.client.delete("w1")
    await ground.settled("w1")
    await _becomes(ground, "w2", "FAILED")
    assert sorted(told(await ground.client.collect())) == [("orphan", "w2", True)] * 2
    await ground.judge()
    assert not ground.entries()


async def _hears_nothing(wharf: Wharf) -> None:
    answer = await wharf.client.collect()
    assert not answer.garbage
    assert [each.provider for each in answer.unasked] == ["docker"]
    with pytest.raises(MoorageError) as caught:
        await wharf.client.collect(provider="docker")
    assert caught.value.reason_name == "DEPENDENCY_UNAVAILABLE"
    assert (await wharf.row("w1"))["state"] == "READY"


async def _is_back(wharf: Wharf) -> bool:
    return not await _cause(wharf)


async def _finds_it_away(wharf: Wharf) -> None:
    """Before anybody looks whether it is there."""
    with pytest.raises(MoorageError):
        await wharf.client.collect(provider="docker")
    assert await _cause(wharf)


async def _is_empty(wharf: Wharf) -> bool:
    return not await wharf.containers()
