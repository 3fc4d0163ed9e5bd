"""Group commit: many callers' acquisitions and releases in one transaction, each with its own answer (F1, F2, S2)."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta

import pytest

from services.common.database import Database
from services.common.errors import DependencyUnavailable
from services.owner.grouping import LeaseGroups
from services.owner.leases import (
    Acquisition,
    Lease,
    LeaseHeld,
    LeaseStale,
    Release,
    RequestIdReused,
)
from services.owner.store.batches import BatchStore, Outcome
from services.owner.store.leases import LeaseStore
from tests.owner.replicas import Connection

NAMES = ("a", "b", "c", "d")


@pytest.fixture
def store(database: Database) -> LeaseStore:
    return LeaseStore(database)


@pytest.fixture
def batches(database: Database) -> BatchStore:
    return BatchStore(database)


def wish(resource: str, holder: str = "alice/1", request_id: str = "", seconds: float = 30.0) -> Acquisition:
    return Acquisition(resource, holder, timedelta(seconds=seconds), "", {"role": "runner"}, request_id)


async def known(store: LeaseStore, *resources: str) -> None:
    """Let each have been leased once, token 1, and be free."""
    for resource in resources:
        lease = await store.acquire(wish(resource, "before/1"))
        await store.release(Release(resource, "before/1", lease.token))


async def ids(connection: Connection) -> set[tuple[str, str]]:
    rows = await connection.fetch("SELECT holder, request_id FROM owner.requests")
    return {(row["holder"], row["request_id"]) for row in rows}


async def test_each_of_a_batch_has_its_own_outcome_and_what_is_refused_stores_nothing(
    store: LeaseStore, batches: BatchStore, connection: Connection
) -> None:
    await known(store, *NAMES)
    mine = await store.acquire(wish("c"))
    await store.acquire(wish("b", "bob/1"))
    outcomes = await batches.run(
        [wish("a", request_id="r1"), wish("b", request_id="r2")],
        [Release("c", "alice/1", mine.token), Release("d", "alice/1", 1)],
    )
    granted, held, ended, stale = (outcomes[name] for name in NAMES)
    assert isinstance(granted, Lease) and isinstance(ended, Lease)
    assert (granted.holder, granted.token, granted.live, granted.ttl.total_seconds()) == (
        "alice/1",
        2,
        True,
        30,
    )
    assert (ended.token, ended.live) == (2, False)
    assert isinstance(held, LeaseHeld) and isinstance(stale, LeaseStale)
    assert held.metadata["holder"] == "bob/1"
    assert held.retry_after and held.retry_after > 0
    assert await ids(connection) == {("alice/1", "r1")}
    # As the ones that are made alone.
    assert await store.get("a") == granted
    assert await store.acquire(wish("a", request_id="r1")) == granted
    with pytest.raises(LeaseHeld):
        await store.acquire(wish("a", "bob/1"))
    assert not (await store.get("c")).live


async def test_what_is_new_repeated_or_locked_is_left_alone_and_holds_nobody_up(
    store: LeaseStore, batches: BatchStore, connection: Connection
) -> None:
    await known(store, *NAMES)
    await store.acquire(wish("b", request_id="r1"))
    async with connection.transaction():
        await connection.execute("SELECT FROM owner.leases WHERE resource IN ('c', 'd') FOR UPDATE")
        outcomes = await batches.run(
            [
                wish("a", request_id="r2"),
                wish("b", request_id="r1"),
                wish("c", request_id="r3"),
                wish("new", request_id="r4"),
            ],
            [Release("d", "before/1", 1)],
        )
    assert outcomes.keys() == {"a"}
    assert await ids(connection) == {("alice/1", "r1"), ("alice/1", "r2")}
    assert await connection.fetchval("SELECT count(*) FROM owner.leases") == len(NAMES)


async def test_a_request_id_that_is_under_way_elsewhere_holds_nobody_up_for_long(
    store: LeaseStore, batches: BatchStore, connection: Connection
) -> None:
    await known(store, "a", "b")
    async with connection.transaction():
        await connection.execute(
            "INSERT INTO owner.requests (holder, request_id, resource, fingerprint) VALUES ('alice/1', 'r1', 'a', '')"
        )
        assert await batches.run([wish("a", request_id="r1"), wish("b")], []) == {}
    assert (await store.get("b")).token == 1


async def test_a_lease_that_is_told_of_as_replaced_is_told_of_still(
    store: LeaseStore, batches: BatchStore, connection: Connection
) -> None:
    """Whoever gets it after a takeover learns until when the replaced holder may believe in its grant (F8)."""
    await store.acquire(wish("a", seconds=60.0))
    taken = await store.acquire(replace(wish("a", "taker/1"), labels={"role": "service"}, takeover_token=1))
    await store.release(Release("a", "taker/1", 2))
    outcome = (await batches.run([wish("a")], []))["a"]
    assert isinstance(outcome, Lease)
    assert outcome.replaced_expire_time == taken.replaced_expire_time is not None
    await store.release(Release("a", "alice/1", 3))
    await connection.execute("UPDATE owner.leases SET replaced_expires_at = clock_timestamp()")
    outcome = (await batches.run([wish("a")], []))["a"]
    assert isinstance(outcome, Lease)
    assert outcome.replaced_expire_time is None


async def test_many_callers_share_transactions_and_each_gets_what_it_would_have_got_alone(
    store: LeaseStore, batches: BatchStore, connection: Connection
) -> None:
    names = [f"r{number}" for number in range(30)]
    await known(store, *names)
    async with running(LeaseGroups(store, batches)) as groups:
        wishes = [wish(name, holder) for name in names for holder in ("alice/1", "bob/1")]
        outcomes = await asyncio.gather(*map(groups.acquire, wishes), return_exceptions=True)
        leases = [outcome for outcome in outcomes if isinstance(outcome, Lease)]
        assert sorted(lease.resource for lease in leases) == sorted(names)
        assert {lease.token for lease in leases} == {2}
        assert sum(isinstance(outcome, LeaseHeld) for outcome in outcomes) == len(names)
        ends = [Release(lease.resource, lease.holder, lease.token) for lease in leases]
        ended = await asyncio.gather(*map(groups.release, [*ends, *ends]))
        assert not any(lease.live for lease in ended)
        # Without rivals all are of one transaction, but for the two that found nothing under way.
        await asyncio.gather(*map(groups.acquire, map(wish, names)))
        together = "SELECT count(*) FROM owner.leases GROUP BY xmin ORDER BY 1 DESC"
        assert await connection.fetchval(together) == len(names) - 2
        await asyncio.gather(*(groups.release(Release(name, "alice/1", 3)) for name in names))
    # Afterwards each goes by itself.
    assert [lease.token for lease in await asyncio.gather(*map(groups.acquire, map(wish, names)))] == [4] * 30


@pytest.mark.parametrize("held", [False, True])
async def test_a_request_id_used_twice_at_once_is_good_for_one(
    store: LeaseStore, batches: BatchStore, connection: Connection, held: bool
) -> None:
    """Whichever comes first; what the other one leaves behind does not forget the id."""
    await known(store, *NAMES)
    if held:
        await store.acquire(wish("b", "bob/1"))
    async with running(LeaseGroups(store, batches)) as groups:
        # Two go alone; the others would go together.
        wishes = [wish("c"), wish("d"), wish("a", request_id="r1"), wish("b", request_id="r1")]
        outcomes = await asyncio.gather(*map(groups.acquire, wishes), return_exceptions=True)
    [granted] = [outcome for outcome in outcomes[2:] if isinstance(outcome, Lease)]
    [refused] = [outcome for outcome in outcomes[2:] if not isinstance(outcome, Lease)]
    assert isinstance(refused, (RequestIdReused, LeaseHeld) if held else RequestIdReused)
    assert await ids(connection) == {("alice/1", "r1")}
    assert await store.acquire(wish(granted.resource, request_id="r1")) == granted
    assert [lease.token for lease in await store.list_leases("", "", live_only=True, limit=9)] == [2] * (
        4 if held else 3
    )


@pytest.mark.parametrize(
    "error", [ValueError("a bug"), DependencyUnavailable(dependency="database", cause="")]
)
async def test_a_batch_that_fails_fails_those_whose_outcome_is_unknown_and_no_others(
    store: LeaseStore, database: Database, error: Exception
) -> None:
    await known(store, *NAMES)
    async with running(LeaseGroups(store, Broken(database, error))) as groups:
        outcomes = await asyncio.gather(*map(groups.acquire, map(wish, NAMES)), return_exceptions=True)
    failed = [outcome for outcome in outcomes if isinstance(outcome, DependencyUnavailable)]
    assert len(failed) == (0 if isinstance(error, ValueError) else len(NAMES) - 2)
    # Each its own, which says the same.
    assert len(set(map(id, failed))) == len(failed)
    assert {(str(each), each.reason, each.metadata["dependency"]) for each in failed} <= {
        (str(error), DependencyUnavailable.reason, "database")
    }
    assert sum(isinstance(outcome, Lease) for outcome in outcomes) == len(NAMES) - len(failed)


async def test_a_caller_that_leaves_before_its_turn_gets_nothing(
    store: LeaseStore, batches: BatchStore, connection: Connection
) -> None:
    await known(store, *NAMES)
    async with connection.transaction():
        await connection.execute("SELECT FROM owner.leases WHERE resource IN ('a', 'b') FOR UPDATE")
        async with running(LeaseGroups(store, batches)) as groups:
            # Two wait for their rows alone; of the others one leaves at once.
            calls = [asyncio.create_task(groups.acquire(wish(name))) for name in NAMES]
            await asyncio.sleep(0)
            calls[3].cancel()
            assert (await calls[2]).token == 2
            await asyncio.wait({calls[3]})
            assert (await store.get("d")).token == 1
            for call in calls[:2]:
                call.cancel()
            await asyncio.wait(calls)


@contextlib.asynccontextmanager
async def running(groups: LeaseGroups) -> AsyncIterator[LeaseGroups]:
    """Working within the block."""
    work = asyncio.create_task(groups.run())
    await asyncio.sleep(0)
    try:
        yield groups
    finally:
        work.cancel()
        await asyncio.wait({work})


class Broken(BatchStore):
    """Fails as it is told to."""

    def __init__(self, database: Database, error: Exception) -> None:
        super().__init__(database)
        self._error = error

    async def run(
        self, acquisitions: Sequence[Acquisition], releases: Sequence[Release]
    ) -> Mapping[str, Outcome]:
        raise self._error
