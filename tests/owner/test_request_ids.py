"""How long request ids are kept, and that what commits is durable."""

from __future__ import annotations

from datetime import timedelta

import pytest

from services.common.database import Database
from services.common.settings import DatabaseSettings
from services.owner.leases import Acquisition, LeaseEnded, Renewal
from services.owner.store.batches import BatchStore
from services.owner.store.leases import LeaseStore
from tests.conditions import eventually
from tests.owner.replicas import Connection, Holder, replica

DAY = timedelta(days=1)


@pytest.fixture
def store(database: Database) -> LeaseStore:
    """The store on this test's database."""
    return LeaseStore(database)


async def test_an_id_is_kept_for_a_day_after_the_end_of_its_lease(
    store: LeaseStore, connection: Connection
) -> None:
    for name in ("live", "ended lately", "ended long ago"):
        await store.acquire(_acquisition(name.replace(" ", "-"), request_id=name))
    await connection.execute("UPDATE owner.requests SET created_at = created_at - interval '3 days'")
    await _end(connection, "ended-lately", timedelta(hours=23))
    await _end(connection, "ended-long-ago", timedelta(hours=25))
    assert await store.purge_requests(DAY, 100) == 1
    assert await _ids(connection) == ["ended lately", "live"]
    with pytest.raises(LeaseEnded):
        await store.acquire(_acquisition("ended-lately", request_id="ended lately"))


async def test_a_young_id_is_kept_whatever_became_of_its_lease(
    store: LeaseStore, connection: Connection
) -> None:
    await store.acquire(_acquisition("a", request_id="one"))
    await connection.execute("UPDATE owner.requests SET created_at = created_at - interval '23 hours'")
    await _end(connection, "a", timedelta(hours=23))
    await store.acquire(_acquisition("a", request_id="two"))
    assert await store.purge_requests(DAY, 100) == 0


async def test_an_old_id_of_a_lease_that_went_to_another_goes(
    store: LeaseStore, connection: Connection
) -> None:
    await store.acquire(_acquisition("a", request_id="one"))
    await _end(connection, "a", timedelta(hours=30))
    await connection.execute("UPDATE owner.requests SET created_at = created_at - interval '30 hours'")
    await store.acquire(_acquisition("a", holder="bob/1", request_id="two"))
    assert await store.purge_requests(DAY, 100) == 1
    assert await _ids(connection) == ["two"]


async def test_a_purge_takes_the_oldest_and_passes_over_those_in_use(
    store: LeaseStore, connection: Connection
) -> None:
    await connection.execute(
        """
        INSERT INTO owner.requests (holder, request_id, resource, fingerprint, created_at)
        SELECT 'alice/1', number::text, 'a', '', clock_timestamp() - interval '30 hours' - number * interval '1 s'
        FROM generate_series(1, 5) AS number
        """
    )
    async with connection.transaction():
        await connection.execute("SELECT FROM owner.requests WHERE request_id = '5' FOR UPDATE")
        assert await store.purge_requests(DAY, 2) == 2
        assert await _ids(connection) == ["1", "2", "5"]


async def test_a_replica_purges_by_itself(database_url: str, connection: Connection) -> None:
    async with replica(database_url, purge_interval=0.05, request_id_retention=0.05) as channel:
        alice = Holder(channel, "alice/1")
        await alice.acquire("a", 0.05, request_id="one")

        async def is_purged() -> bool:
            return await _ids(connection) == []

        await eventually(is_purged)


@pytest.mark.parametrize("configured", ["off", "local", "remote_write", "on", "remote_apply"])
async def test_grants_and_renewals_commit_durably(
    database_url: str, connection: Connection, configured: str
) -> None:
    """However the server is configured; a stronger setting is left alone."""
    await connection.execute(
        """
        CREATE TABLE owner.commits (synchronous text);
        CREATE FUNCTION owner.note_commit() RETURNS trigger LANGUAGE plpgsql AS $$
        BEGIN
            INSERT INTO owner.commits VALUES (current_setting('synchronous_commit'));
            RETURN NULL;
        END $$;
        CREATE CONSTRAINT TRIGGER note_commit AFTER UPDATE ON owner.leases
        DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION owner.note_commit();
        """
    )
    name = await connection.fetchval("SELECT current_database()")
    await connection.execute(f'ALTER DATABASE "{name}" SET synchronous_commit = {configured}')
    async with Database(DatabaseSettings(database_url=database_url)) as database:
        store = LeaseStore(database)
        await store.acquire(_acquisition("a"))
        await store.renew("alice/1", [Renewal("a", 1)])
        await connection.execute("INSERT INTO owner.leases (resource) VALUES ('b')")
        assert (await BatchStore(database).run([_acquisition("b")], [])).keys() == {"b"}
    used = [row["synchronous"] for row in await connection.fetch("SELECT * FROM owner.commits")]
    assert used == [configured if configured == "remote_apply" else "on"] * 3


def _acquisition(resource: str, *, holder: str = "alice/1", request_id: str = "") -> Acquisition:
    return Acquisition(resource, holder, timedelta(seconds=30), "", {"role": "runner"}, request_id)


async def _end(connection: Connection, resource: str, ago: timedelta) -> None:
    await connection.execute(
        "UPDATE owner.leases SET expires_at = clock_timestamp() - $2::interval WHERE resource = $1",
        resource,
        ago,
    )


async def _ids(connection: Connection) -> list[str]:
    rows = await connection.fetch("SELECT request_id FROM owner.requests ORDER BY request_id")
    return [row["request_id"] for row in rows]
