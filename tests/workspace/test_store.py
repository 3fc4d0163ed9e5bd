"""The row's side of the fence, and guarded states (F4)."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from services.common.database import Database
from services.workspace.sources.results import Result
from services.workspace.specs import Spec
from services.workspace.store.sources import SourceStore
from services.workspace.store.work import WorkStore
from services.workspace.store.workspaces import Bounds, Plan, WorkspaceStore
from services.workspace.workspaces import Intent, Origin, Source, Workspace, WorkspaceNotFound, WorkspaceState
from tests.conditions import eventually

PROVISIONING = WorkspaceState.PROVISIONING
KINDS = [("local", PROVISIONING)]


@pytest.fixture
async def work(database: Database) -> WorkStore:
    """Of an instance that serves."""
    work = WorkStore(database, "one")
    await work.take_over("host:1", 5)
    return work


@pytest.fixture
async def store(database: Database, work: WorkStore) -> WorkspaceStore:
    """With the workspace w1, still to be made."""
    store = WorkspaceStore(database)
    intent = Intent("default", "w1", "s1", Source.PROVISION, "local", "", Spec())
    bounds = Bounds(timedelta(seconds=60), None)
    plan = Plan(Origin.PROVISIONED, WorkspaceState.PROVISIONING, "/state/w1", "one", Spec(), bounds)
    await store.insert(intent, plan)
    return store


async def shows(token: int) -> int:
    return token


async def test_a_token_never_goes_back(store: WorkspaceStore, database: Database) -> None:
    locked, go_on = asyncio.Event(), asyncio.Event()

    async def slow(_: Workspace) -> int:
        locked.set()
        await go_on.wait()
        return 2

    first = asyncio.create_task(store.raise_fence("default", "w1", slow))
    await locked.wait()
    second = asyncio.create_task(store.raise_fence("default", "w1", lambda _: shows(3)))
    await eventually(lambda: _somebody_waits(database))
    assert not second.done()
    go_on.set()
    assert [(await each)[0].token for each in (first, second)] == [2, 3]
    stale, shown = await store.raise_fence("default", "w1", lambda _: shows(1))
    assert (stale.token, shown) == (3, 1)
    assert (await store.get("default", "w1")).token == 3


async def test_a_refusal_changes_nothing(store: WorkspaceStore) -> None:
    async def refuse(_: Workspace) -> int:
        raise PermissionError

    with pytest.raises(PermissionError):
        await store.raise_fence("default", "w1", refuse)
    assert (await store.get("default", "w1")).token == 0


async def test_there_is_no_fence_without_a_workspace(store: WorkspaceStore) -> None:
    with pytest.raises(WorkspaceNotFound):
        await store.raise_fence("default", "w2", lambda _: shows(1))


async def test_a_state_is_left_once(store: WorkspaceStore) -> None:
    found = await store.get("default", "w1")
    assert await store.settle(found, WorkspaceState.READY)
    assert not await store.settle(found, WorkspaceState.FAILED, state_reason="too late")
    assert (await store.get("default", "w1")).state is WorkspaceState.READY


async def test_a_wish_to_delete_wins_over_being_made(store: WorkspaceStore) -> None:
    found = await store.get("default", "w1")
    assert (await store.mark_deleting("default", "w1")).state is WorkspaceState.DELETING
    assert not await store.settle(found, WorkspaceState.READY)
    assert (await store.get("default", "w1")).state is WorkspaceState.DELETING


async def test_due_work_is_taken_once(store: WorkspaceStore, work: WorkStore) -> None:
    hour = timedelta(hours=1)
    taken = await asyncio.gather(*(work.take_due("local", PROVISIONING, 10, hour) for _ in range(5)))
    assert sorted(map(len, taken)) == [0, 0, 0, 0, 1]
    due = await work.next_due(KINDS)
    assert due is not None
    assert 0 < due <= 60, "at its deadline"
    # A successor begins anew, at once.
    await work.take_over("host:2", 6)
    (again,) = await work.take_due("local", PROVISIONING, 10, hour)
    assert (again.attempts, again.endpoint) == (2, "host:2")


async def test_what_is_being_tried_is_no_further_attempt(store: WorkspaceStore, work: WorkStore) -> None:
    busy = {("default", "w1"): "a task"}
    (first,) = await work.take_due("local", PROVISIONING, 10, timedelta())
    (still,) = await work.take_due("local", PROVISIONING, 10, timedelta(), busy)
    (second,) = await work.take_due("local", PROVISIONING, 10, timedelta(), {("default", "w2"): "another"})
    assert [each.attempts for each in (first, still, second)] == [1, 1, 2]


async def test_what_cannot_be_begun_is_waited_for_until_its_deadline_only(
    store: WorkspaceStore, work: WorkStore
) -> None:
    now = await work.next_due(KINDS)
    assert now is not None
    assert now <= 0
    later = await work.next_due([("docker", PROVISIONING), ("local", WorkspaceState.DELETING)])
    assert later is not None
    assert 0 < later <= 60
    await store.mark_deleting("default", "w1")
    assert await work.next_due(KINDS) is None


async def test_a_former_holder_changes_no_endpoint(store: WorkspaceStore, work: WorkStore) -> None:
    await work.take_over("stale:1", 4)
    assert (await store.get("default", "w1")).endpoint == "host:1"


async def test_work_of_others_is_not_taken(store: WorkspaceStore, database: Database) -> None:
    other = WorkStore(database, "two")
    await other.take_over("host:3", 1)
    assert await other.take_due("local", PROVISIONING, 10, timedelta(hours=1)) == []
    assert await other.next_due(KINDS) is None


async def test_a_deployment_is_named_by_its_database(work: WorkStore) -> None:
    assert await work.deployment() == await work.deployment()


async def _somebody_waits(database: Database) -> bool:
    async with database.connection() as connection:
        waiting: int = await connection.fetchval(
            "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' "
            "AND datname = current_database()"
        )
    return waiting > 0


async def test_what_is_made_anew_has_the_next_generation(store: WorkspaceStore, work: WorkStore) -> None:
    found = await store.get("default", "w1")
    assert found.generation == 1
    await work.put_off(found, timedelta(), "in the way", anew=True)
    assert (await store.get("default", "w1")).generation == 2
    await work.put_off(found, timedelta(), "once more")
    assert (await store.get("default", "w1")).generation == 2


async def test_words_that_a_database_cannot_have_are_stored_all_the_same(
    store: WorkspaceStore, work: WorkStore, database: Database
) -> None:
    found = await store.get("default", "w1")
    sources = SourceStore(database)
    await sources.keep_result(
        found, Result(1, "", None, out_of_memory=False, output="a\0b\udcff", truncated=False)
    )
    kept = await sources.result("default", "w1")
    assert kept is not None
    assert kept.output == "a\ufffdb\ufffd"
    await work.put_off(found, timedelta(), "a\0b\udcff\x1b[2Jc\nd")
    assert (await store.get("default", "w1")).state_reason == "a\ufffdb\ufffd\ufffd[2Jc\nd"
    assert await store.settle(found, WorkspaceState.FAILED, state_reason="\0" + "x" * 5000)
    assert (await store.get("default", "w1")).state_reason == "\ufffd" + "x" * 1999
