"""AcquireLease with takeover_token: exactly the named token is replaced, live or not."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from google.protobuf.timestamp_pb2 import Timestamp
from moorage.owner.v1 import lease_pb2

from services.common.errors import Aborted, AlreadyExists, FailedPrecondition, NotFound
from services.fencing.grants import decode
from tests.owner.replicas import Connection, Holder, until_ended

R = "projects/p/sessions/s"
OPERATOR = {"role": "operator"}


async def test_a_live_lease_is_replaced_at_once(alice: Holder, bob: Holder) -> None:
    await alice.acquire(R)
    [renewed] = await alice.renew((R, 1))
    taken = await bob.take_over(R, 1, 5.0)
    assert (taken.lease.holder, taken.lease.token, taken.lease.live) == ("bob/1", 2, True)
    assert taken.lease.expire_time.ToDatetime() - taken.lease.acquire_time.ToDatetime() == timedelta(
        seconds=5
    )
    # The newest grant that alice may show ends then.
    assert taken.replaced_expire_time == renewed.expire_time
    assert decode(renewed.grant.payload).expire_time == _time(taken.replaced_expire_time)
    assert await bob.get(R) == taken.lease


async def test_what_was_replaced_is_over_for_its_holder(alice: Holder, bob: Holder) -> None:
    await alice.acquire(R, request_id="one")
    taken = (await bob.take_over(R, 1)).lease
    [result] = await alice.renew((R, 1))
    assert result.state == lease_pb2.RENEWAL_STATE_STALE
    for call in (alice.release(R, 1), alice.acquire(R, request_id="one")):
        with pytest.raises(Aborted) as caught:
            await call
        assert caught.value.reason_name == "LEASE_STALE"
    with pytest.raises(FailedPrecondition):
        await alice.acquire(R)
    assert await bob.get(R) == taken


async def test_the_grant_of_an_operator_says_so(alice: Holder, bob: Holder) -> None:
    await alice.acquire(R)
    taken = await bob.acquire(R, labels=OPERATOR, takeover_token=1)
    claims = decode(taken.grant.payload)
    assert (claims.holder, claims.token, claims.role) == ("bob/1", 2, "operator")


async def test_a_released_lease_is_replaced_by_its_token(alice: Holder, bob: Holder) -> None:
    await alice.acquire(R)
    released = await alice.release(R, 1)
    taken = await bob.take_over(R, 1)
    assert (taken.lease.token, taken.replaced_expire_time) == (2, released.expire_time)


async def test_an_expired_lease_is_replaced_by_its_token(
    alice: Holder, bob: Holder, connection: Connection
) -> None:
    held = (await alice.acquire(R, 0.05)).lease
    await until_ended(connection, R)
    taken = await bob.take_over(R, 1)
    assert (taken.lease.token, taken.replaced_expire_time) == (2, held.expire_time)


@pytest.mark.parametrize("named", [1, 3])
@pytest.mark.parametrize("live", [True, False])
async def test_another_token_is_stale_and_changes_nothing(
    alice: Holder, bob: Holder, named: int, live: bool
) -> None:
    await alice.acquire(R)
    await alice.release(R, 1)
    await alice.acquire(R)
    if not live:
        await alice.release(R, 2)
    before = await alice.get(R)
    with pytest.raises(Aborted) as caught:
        await bob.take_over(R, named, request_id="one")
    assert caught.value.reason_name == "LEASE_STALE"
    assert caught.value.metadata == {"resource": R, "token": str(named)}
    assert await alice.get(R) == before
    # Refusals are not stored: the id is free.
    assert (await bob.take_over(R, 2, request_id="one")).lease.token == 3


async def test_without_a_lease_there_is_nothing_to_replace(bob: Holder) -> None:
    with pytest.raises(Aborted) as caught:
        await bob.take_over(R, 1)
    assert caught.value.reason_name == "LEASE_STALE"
    with pytest.raises(NotFound):
        await bob.get(R)


async def test_a_repeated_takeover_finds_what_it_got(alice: Holder, bob: Holder) -> None:
    await alice.acquire(R)
    taken = await bob.take_over(R, 1, request_id="one")
    assert await bob.take_over(R, 1, request_id="one") == taken
    with pytest.raises(AlreadyExists):
        await bob.take_over(R, 2, request_id="one")
    with pytest.raises(AlreadyExists):
        await bob.acquire(R, labels={"role": "service"}, request_id="one")
    await alice.take_over(R, 2)
    with pytest.raises(Aborted):
        await bob.take_over(R, 1, request_id="one")


async def test_who_follows_a_taker_hears_of_all_whom_it_replaced(
    alice: Holder, bob: Holder, connection: Connection
) -> None:
    """The first holder's grant goes on, whatever becomes of those who took over."""
    held = (await alice.acquire(R, 30.0)).lease
    await bob.take_over(R, 1, 0.05)
    assert (await alice.take_over(R, 2, 0.05)).replaced_expire_time == held.expire_time
    await until_ended(connection, R)
    assert (await bob.acquire(R)).replaced_expire_time == held.expire_time
    await bob.release(R, 4)
    assert (await bob.get(R)).replaced_expire_time == held.expire_time
    assert (await alice.acquire(R)).replaced_expire_time == held.expire_time


async def test_who_comes_when_that_has_ended_hears_nothing(
    alice: Holder, bob: Holder, connection: Connection
) -> None:
    assert not (await alice.acquire(R, 0.2)).HasField("replaced_expire_time")
    taken = await bob.take_over(R, 1, 0.05)
    await connection.execute("SELECT pg_sleep_until($1)", _time(taken.replaced_expire_time))
    await until_ended(connection, R)
    assert not (await alice.acquire(R)).HasField("replaced_expire_time")


def _time(timestamp: Timestamp) -> datetime:
    return timestamp.ToDatetime(tzinfo=UTC)
