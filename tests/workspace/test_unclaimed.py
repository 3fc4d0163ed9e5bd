"""Workspaces whose session was never stored (W2)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from moorage.workspace.v1 import workspace_pb2

from services.common.clock import ManualClock
from services.common.database import Database
from services.common.errors import DependencyUnavailable
from services.workspace.collector.unclaimed import Claims
from services.workspace.store.claims import ClaimStore
from tests.databases import execute, fetch_value
from tests.workspace.garbage import rows, told
from tests.workspace.instances import Client, Holder, Machine, running
from tests.workspace.sessions import Sessions, no_sessions, serving

READY = workspace_pb2.WORKSPACE_STATE_READY
DELETED = workspace_pb2.WORKSPACE_STATE_DELETED


@pytest.fixture
def sessions() -> Sessions:
    return no_sessions()


@pytest.fixture
async def asking(machine: Machine, sessions: Sessions) -> AsyncIterator[Client]:
    """A client of an instance that asks these sessions."""
    async with (
        serving(sessions) as address,
        running(machine, session_address=address) as (client, _),
    ):
        yield client


async def _pass_time(machine: Machine) -> None:
    await execute(
        machine.database_url,
        "UPDATE workspace.workspaces SET created_at = created_at - interval '11 minutes'",
    )


async def test_a_workspace_whose_session_was_never_stored_is_removed(
    asking: Client, sessions: Sessions, machine: Machine
) -> None:
    root = Path((await asking.make(project="p")).root)
    assert not (await asking.collect()).garbage, "it may be stored yet"
    await _pass_time(machine)
    dry = await asking.collect(dry_run=True)
    assert told(dry) == [("unclaimed", "w1", False)]
    assert dry.garbage[0].cause == "session s1 is not stored"
    assert (await asking.get(project="p")).state == READY
    assert told(await asking.collect()) == [("unclaimed", "w1", True)]
    assert (await asking.settled(project="p")).state == DELETED
    assert not root.exists()
    assert set(sessions.asked) == {("p", "s1")}


async def test_a_session_that_has_another_workspace_does_not_need_it(
    asking: Client, sessions: Sessions, machine: Machine
) -> None:
    await asking.make("w1")
    sessions.stored["default", "s1"] = "w2"
    await _pass_time(machine)
    assert told(await asking.collect()) == [("unclaimed", "w1", True)]


async def test_one_whose_session_is_stored_is_asked_about_once(
    asking: Client, sessions: Sessions, machine: Machine
) -> None:
    await asking.make()
    sessions.stored["default", "s1"] = "w1"
    for _ in range(3):
        assert not (await asking.collect()).garbage
    assert len(sessions.asked) == 1
    # Its end is not the collector's business.
    sessions.stored.clear()
    await _pass_time(machine)
    assert not (await asking.collect()).garbage
    assert (await asking.get()).state == READY


async def test_a_dry_run_claims_nothing(asking: Client, sessions: Sessions, machine: Machine) -> None:
    await asking.make("w1", session_id="s1")
    await asking.make("w2", session_id="s2")
    sessions.stored["default", "s1"] = "w1"
    await _pass_time(machine)
    before = await rows(machine.database_url)
    assert told(await asking.collect(dry_run=True)) == [("unclaimed", "w2", False)]
    assert set(sessions.asked) == {("default", "s1"), ("default", "s2")}
    assert await rows(machine.database_url) == before
    assert told(await asking.collect()) == [("unclaimed", "w2", True)]
    assert await rows(machine.database_url) != before


async def test_nothing_is_concluded_from_silence(
    asking: Client, sessions: Sessions, machine: Machine
) -> None:
    await asking.make()
    await _pass_time(machine)
    sessions.away = True
    assert not (await asking.collect()).garbage
    assert len(sessions.asked) == 1
    sessions.away = False
    assert told(await asking.collect()) == [("unclaimed", "w1", True)]


async def test_a_slow_answer_holds_up_no_pass_and_the_next_goes_on(
    client: Client, machine: Machine, database: Database
) -> None:
    clock, asked = ManualClock(), list[str]()

    async def slow(_: str, session_id: str) -> str:
        asked.append(session_id)
        await clock.advance(4.0)
        return session_id.replace("s", "w")

    for number in range(5):
        await client.make(f"w{number}", session_id=f"s{number}")
    claims = Claims(ClaimStore(database, machine.instance_id, 600), slow, clock)
    for expected in (["s0", "s1"], ["s2", "s3"], ["s4"], []):
        assert [each async for each in claims.run("local", dry_run=False)] == []
        assert asked == expected
        asked.clear()


async def test_each_is_asked_about_in_its_turn_whatever_becomes_of_the_questions(
    client: Client, machine: Machine, database: Database
) -> None:
    """Also when the service is started anew before each pass."""
    asked = list[str]()

    async def unwilling(_: str, session_id: str) -> str:
        asked.append(session_id)
        raise DependencyUnavailable(dependency="session", cause="it is slow")

    for number in range(3):
        await client.make(f"w{number}", session_id=f"s{number}")
    for _ in range(5):
        claims = Claims(ClaimStore(database, machine.instance_id, 600), unwilling, ManualClock())
        assert [each async for each in claims.run("local", dry_run=False)] == []
    assert asked == ["s0", "s1", "s2", "s0", "s1"]


async def test_without_anybody_to_ask_it_is_kept(client: Client, machine: Machine) -> None:
    await client.make()
    await _pass_time(machine)
    assert not (await client.collect()).garbage


async def test_who_showed_a_grant_has_claimed_it(
    asking: Client, sessions: Sessions, machine: Machine, holder: Holder
) -> None:
    await asking.make()
    await asking.claim(await holder.acquire())
    await _pass_time(machine)
    assert not (await asking.collect()).garbage
    assert sessions.asked == []


async def test_a_supplied_directory_stays_where_it_is(
    asking: Client, sessions: Sessions, machine: Machine
) -> None:
    supplied = machine.supplied()
    await asking.adopt(supplied)
    await _pass_time(machine)
    assert told(await asking.collect()) == [("unclaimed", "w1", True)]
    assert (await asking.settled()).state == DELETED
    assert supplied.is_dir()


async def test_a_claim_that_comes_after_the_answer_wins(
    asking: Client, machine: Machine, holder: Holder, database: Database
) -> None:
    await asking.make()
    await _pass_time(machine)
    store = ClaimStore(database, machine.instance_id, 600)
    [late] = await store.unclaimed("local", 10)
    assert late.late
    await asking.claim(await holder.acquire())
    assert not await store.abandon(late.workspace, "too late")
    assert (await asking.get()).state == READY


async def test_one_that_is_young_is_not_abandoned_whatever_was_read(
    asking: Client, machine: Machine, database: Database
) -> None:
    await asking.make()
    store = ClaimStore(database, machine.instance_id, 600)
    [young] = await store.unclaimed("local", 10)
    assert not young.late
    assert not await store.abandon(young.workspace, "too early")
    claimed = await fetch_value(machine.database_url, "SELECT claimed_at FROM workspace.workspaces")
    assert claimed is None
