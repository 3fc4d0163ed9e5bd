"""The keys that sign: one for all replicas, two valid while they rotate."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from datetime import UTC, datetime, timedelta
from functools import partial

import pytest
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from moorage.common.v1.grant_pb2 import Grant
from moorage.owner.v1.lease_pb2 import GrantKey

from services.common.database import Database
from services.common.settings import DatabaseSettings
from services.owner.keys import KeyRing, KeySchedule, NewKey, StoredKey, signing
from services.owner.store.keys import KeyStore
from tests.conditions import eventually
from tests.owner.replicas import Connection, Holder, replica

SCHEDULE = KeySchedule(lifetime=timedelta(days=90), notice=timedelta(minutes=15), overlap=timedelta(hours=3))


async def test_replicas_that_start_at_once_on_an_empty_database_agree(database_url: str) -> None:
    async with AsyncExitStack() as stack:
        channels = await asyncio.gather(
            *(stack.enter_async_context(replica(database_url, database_pool_size=3)) for _ in range(4))
        )
        grants = [
            (await Holder(channel, "a/1").acquire(f"r{number}")).grant
            for number, channel in enumerate(channels)
        ]
        assert len({grant.kid for grant in grants}) == 1
        for channel in channels:
            [key] = await Holder(channel, "a/1").keys()
            for grant in grants:
                _verify(grant, [key])


async def test_many_candidates_make_one_key(database_url: str) -> None:
    async with Database(DatabaseSettings(database_url=database_url, database_pool_size=8)) as database:
        store = KeyStore(database, SCHEDULE)
        agreed = await asyncio.gather(*(store.agree_on_keys(NewKey.mint()) for _ in range(8)))
    assert all(keys == agreed[0] for keys in agreed)
    assert len(agreed[0]) == 1


async def test_a_restart_keeps_the_key(database_url: str) -> None:
    kids = []
    for _ in range(2):
        async with replica(database_url) as channel:
            kids.append([key.kid for key in await Holder(channel, "a/1").keys()])
    assert kids[0] == kids[1]


async def test_a_new_key_is_listed_before_it_signs(database_url: str, connection: Connection) -> None:
    """Verifiers, which look every five minutes, know it then."""
    async with replica(database_url, key_refresh=0.05) as channel:
        alice = Holder(channel, "alice/1")
        old = (await alice.acquire("a")).grant
        await _age_keys(connection, timedelta(days=91))
        await eventually(partial(_lists, alice, 2))
        new, first = [key.kid for key in await alice.keys()]
        assert (first, {each.kid for each in await _renewed(alice, "a", 20)}) == (old.kid, {old.kid})
        await _age_keys(connection, timedelta(minutes=15))
        await eventually(partial(_signs_with, alice, new))
        _verify(old, await alice.keys())
        _verify((await alice.acquire("c")).grant, await alice.keys())


async def test_a_replaced_key_is_dropped_when_no_grant_of_it_can_be_alive(
    database: Database, connection: Connection
) -> None:
    store = KeyStore(database, SCHEDULE)
    [first] = await store.agree_on_keys(NewKey.mint())
    await _age_keys(connection, timedelta(days=91))
    second, also_first = await store.agree_on_keys(NewKey.mint())
    assert (also_first.kid, second.kid != first.kid) == (first.kid, True)
    await _age_keys(connection, SCHEDULE.notice + SCHEDULE.overlap - timedelta(minutes=1))
    assert len(await store.agree_on_keys(NewKey.mint())) == 2
    await _age_keys(connection, timedelta(minutes=2))
    left = await store.agree_on_keys(NewKey.mint())
    assert [key.kid for key in left] == [key.kid for key in await store.keys()] == [second.kid]


async def test_a_key_whose_row_is_deleted_is_replaced_at_once(
    database_url: str, connection: Connection
) -> None:
    """What an operator does with a key that others may know: nobody waits for the new one's notice."""
    async with replica(database_url, key_refresh=0.05) as channel:
        alice = Holder(channel, "alice/1")
        bad = (await alice.acquire("a")).grant.kid
        await connection.execute("DELETE FROM owner.grant_keys WHERE kid = $1", bad)
        await eventually(partial(_lists, alice, 1))
        [key] = await alice.keys()
        await eventually(partial(_signs_with, alice, key.kid))
        assert key.kid != bad


async def test_another_replica_knows_a_key_before_it_signs_with_it(
    database_url: str, connection: Connection
) -> None:
    """A verifier that meets a new kid may ask any replica."""
    async with (
        replica(database_url) as late,
        replica(database_url, key_refresh=0.05, key_notice=0.05) as early,
    ):
        await _age_keys(connection, timedelta(days=91))
        await eventually(partial(_lists, Holder(early, "a/1"), 2))
        grant = (await Holder(late, "a/1").acquire("r")).grant
        keys = await Holder(late, "a/1").keys()
        assert [key.kid for key in keys][1] == grant.kid
        await Holder(early, "b/1").acquire("s")
        await eventually(partial(_signs_with, Holder(early, "b/1"), keys[0].kid, "s"))
        _verify(grant, keys)


@pytest.mark.parametrize(
    ("noticed", "signs"),
    [([True], 0), ([False], 0), ([False, True], 1), ([True, True], 0), ([False, False], 1)],
)
def test_the_newest_key_that_verifiers_know_signs(noticed: list[bool], signs: int) -> None:
    now = datetime.now(UTC)
    keys = [StoredKey(f"key_{number}", b"", now, is_noticed) for number, is_noticed in enumerate(noticed)]
    assert signing(keys) is keys[signs]


async def test_a_changed_byte_breaks_the_signature(alice: Holder) -> None:
    grant = (await alice.acquire("r")).grant
    keys = await alice.keys()
    grant.payload = grant.payload.replace(b"alice/1", b"alice/2")
    with pytest.raises(InvalidSignature):
        _verify(grant, keys)


def test_private_keys_do_not_show() -> None:
    key = NewKey.mint()
    assert repr(key.private_key) not in repr(key)
    assert KeyRing().is_empty


async def _lists(holder: Holder, number: int) -> bool:
    return len(await holder.keys()) == number


async def _signs_with(holder: Holder, kid: str, resource: str = "a") -> bool:
    return {grant.kid for grant in await _renewed(holder, resource, 1)} == {kid}


async def _renewed(holder: Holder, resource: str, times: int) -> list[Grant]:
    return [(await holder.renew((resource, 1)))[0].grant for _ in range(times)]


async def _age_keys(connection: Connection, by: timedelta) -> None:
    await connection.execute("UPDATE owner.grant_keys SET created_at = created_at - $1::interval", by)


def _verify(grant: Grant, keys: list[GrantKey]) -> None:
    [public_key] = [key.public_key for key in keys if key.kid == grant.kid]
    Ed25519PublicKey.from_public_bytes(public_key).verify(grant.signature, grant.payload)
