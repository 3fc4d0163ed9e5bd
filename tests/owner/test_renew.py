"""RenewLeases: a result for each item, whatever became of the others."""

from __future__ import annotations

import asyncio
from collections import Counter
from datetime import UTC, timedelta

import pytest
from moorage.owner.v1 import lease_pb2

from services.common.errors import InvalidArgument
from services.fencing.grants import decode
from tests.owner.replicas import Connection, Holder, replica, until_ended

RENEWED = lease_pb2.RENEWAL_STATE_RENEWED
NOT_FOUND = lease_pb2.RENEWAL_STATE_NOT_FOUND
EXPIRED = lease_pb2.RENEWAL_STATE_EXPIRED
STALE = lease_pb2.RENEWAL_STATE_STALE


async def test_a_live_lease_is_extended_by_its_ttl_from_now(alice: Holder, connection: Connection) -> None:
    granted = await alice.acquire("runners/a", 20.0)
    before = await connection.fetchval("SELECT clock_timestamp()")
    [result] = await alice.renew(("runners/a", 1))
    after = await connection.fetchval("SELECT clock_timestamp()")
    assert (result.resource, result.state) == ("runners/a", RENEWED)
    renewed_at = result.expire_time.ToDatetime(tzinfo=UTC) - timedelta(seconds=20)
    assert before <= renewed_at <= after
    claims = decode(result.grant.payload)
    assert (claims.resource, claims.holder, claims.token) == ("runners/a", "alice/1", 1)
    assert (claims.role, claims.expire_time) == ("runner", result.expire_time.ToDatetime(tzinfo=UTC))
    stored = await alice.get("runners/a")
    assert (stored.token, stored.acquire_time) == (1, granted.lease.acquire_time)
    assert stored.expire_time == result.expire_time


async def test_each_item_has_its_own_result_in_the_order_of_the_request(
    alice: Holder, bob: Holder, connection: Connection
) -> None:
    await alice.acquire("runners/live")
    await alice.acquire("runners/expired", 0.05)
    await alice.acquire("runners/released")
    await alice.release("runners/released", 1)
    await bob.acquire("runners/bobs")
    await until_ended(connection, "runners/expired")
    asked = [
        ("runners/released", 1, EXPIRED),
        ("runners/never", 1, NOT_FOUND),
        ("runners/live", 1, RENEWED),
        ("runners/bobs", 1, STALE),
        ("runners/expired", 1, EXPIRED),
    ]
    results = await alice.renew(*((resource, token) for resource, token, _ in asked))
    assert [(result.resource, result.state) for result in results] == [
        (resource, state) for resource, _, state in asked
    ]
    for result in results:
        assert result.HasField("grant") == result.HasField("expire_time") == (result.state == RENEWED)


async def test_a_wrong_token_of_the_right_holder_is_stale(alice: Holder) -> None:
    await alice.acquire("runners/a")
    await alice.release("runners/a", 1)
    await alice.acquire("runners/a")
    results = [(await alice.renew(("runners/a", token)))[0].state for token in (1, 2, 3)]
    assert results == [STALE, RENEWED, STALE]


async def test_an_ended_lease_is_never_revived(alice: Holder, connection: Connection) -> None:
    await alice.acquire("runners/a", 0.05)
    await until_ended(connection, "runners/a")
    before = await alice.get("runners/a")
    assert [result.state for result in await alice.renew(("runners/a", 1))] == [EXPIRED]
    assert await alice.get("runners/a") == before
    assert not before.live


async def test_a_renewal_never_brings_the_end_forward(alice: Holder, connection: Connection) -> None:
    """As when the clock is set back: what an older grant says must stay true."""
    await alice.acquire("runners/a")
    later = await connection.fetchval(
        "UPDATE owner.leases SET expires_at = expires_at + interval '1 hour' RETURNING expires_at"
    )
    [result] = await alice.renew(("runners/a", 1))
    assert result.expire_time.ToDatetime(tzinfo=UTC) == later


async def test_a_resource_named_twice_is_refused(alice: Holder) -> None:
    with pytest.raises(InvalidArgument) as caught:
        await alice.renew(("runners/a", 1), ("runners/b", 1), ("runners/a", 2))
    assert caught.value.violations[0].field == "renewals[2].resource"


async def test_nothing_to_renew_is_fine(alice: Holder) -> None:
    assert await alice.renew() == []


async def test_more_than_ten_thousand_are_refused(alice: Holder) -> None:
    with pytest.raises(InvalidArgument) as caught:
        await alice.renew(*((f"runners/{number}", 1) for number in range(10_001)))
    assert caught.value.violations[0].field == "renewals"


async def test_ten_thousand_at_once_leave_room_for_others(alice: Holder, connection: Connection) -> None:
    """While they are signed another call is answered."""
    await _insert_leases(connection, "alice/1", 10_000)
    renewing = asyncio.create_task(alice.renew(*((f"runners/{number}", 7) for number in range(10_000))))
    answered = 0
    while not renewing.done():
        await alice.keys()
        answered += not renewing.done()
    results = await renewing
    assert [result.state for result in results] == [RENEWED] * 10_000
    assert [result.resource for result in results] == [f"runners/{number}" for number in range(10_000)]
    assert answered > 10


async def test_the_largest_batch_is_renewed_again_and_again(
    database_url: str, connection: Connection
) -> None:
    """From the sixth time on PostgreSQL plans without knowing how many there are."""
    await _insert_leases(connection, "alice/1", 10_000)
    items = [(f"runners/{number}", 7 + number % 2) for number in range(10_000)]
    async with replica(database_url, database_pool_size=1, database_statement_timeout=3.0) as channel:
        alice = Holder(channel, "alice/1")
        for _ in range(7):
            states = Counter(result.state for result in await alice.renew(*items))
            assert states == {RENEWED: 5000, STALE: 5000}


async def _insert_leases(connection: Connection, holder: str, count: int) -> None:
    await connection.execute(
        """
        INSERT INTO owner.leases (resource, holder, token, acquired_at, expires_at, ttl, labels)
        SELECT 'runners/' || number, $1, 7, clock_timestamp(), clock_timestamp() + interval '1 minute',
               interval '1 minute', '{"role": "runner"}'
        FROM generate_series(0, $2::integer - 1) AS number
        """,
        holder,
        count,
    )
