"""AcquireLease: who gets a lease, with which token, and what a repeated call finds."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from services.common.errors import Aborted, AlreadyExists, FailedPrecondition
from services.fencing.grants import decode
from tests.owner.replicas import Connection, Holder, until_ended

SESSION = "projects/p/sessions/s"


async def test_the_lease_is_what_was_asked_for(alice: Holder) -> None:
    labels = {"role": "runner", "pool": "größe"}
    response = await alice.acquire(SESSION, 20.0, endpoint="127.0.0.1:7803", labels=labels)
    lease = response.lease
    assert (lease.resource, lease.holder, lease.token, lease.live) == (SESSION, "alice/1", 1, True)
    assert (lease.endpoint, dict(lease.labels)) == ("127.0.0.1:7803", labels)
    assert lease.ttl.ToTimedelta() == timedelta(seconds=20)
    assert lease.expire_time.ToDatetime() - lease.acquire_time.ToDatetime() == timedelta(seconds=20)
    assert await alice.get(SESSION) == lease


async def test_the_grant_says_what_the_lease_says(alice: Holder) -> None:
    response = await alice.acquire(SESSION, labels={"role": "service"})
    claims = decode(response.grant.payload)
    assert (claims.resource, claims.holder, claims.token, claims.role) == (SESSION, "alice/1", 1, "service")
    assert claims.expire_time == response.lease.expire_time.ToDatetime(tzinfo=UTC)


async def test_without_a_ttl_it_takes_the_default(alice: Holder) -> None:
    assert (await alice.acquire(SESSION, None)).lease.ttl.seconds == 15


async def test_a_live_lease_is_refused_with_its_holder_and_end(alice: Holder, bob: Holder) -> None:
    held = (await alice.acquire(SESSION, 30.0)).lease
    with pytest.raises(FailedPrecondition) as caught:
        await bob.acquire(SESSION)
    error = caught.value
    assert error.reason_name == "LEASE_HELD"
    assert error.metadata["resource"] == SESSION
    assert error.metadata["holder"] == "alice/1"
    assert datetime.fromisoformat(error.metadata["expire_time"]) == held.expire_time.ToDatetime(tzinfo=UTC)
    assert error.retry_after is not None
    assert 25 < error.retry_after <= 30


async def test_its_own_holder_is_refused_as_well(alice: Holder) -> None:
    await alice.acquire(SESSION, request_id="one")
    with pytest.raises(FailedPrecondition) as caught:
        await alice.acquire(SESSION, request_id="two")
    assert (caught.value.reason_name, caught.value.metadata["holder"]) == ("LEASE_HELD", "alice/1")


async def test_tokens_grow_across_release_and_expiry(
    alice: Holder, bob: Holder, connection: Connection
) -> None:
    assert (await alice.acquire(SESSION)).lease.token == 1
    await alice.release(SESSION, 1)
    assert (await bob.acquire(SESSION, 0.05)).lease.token == 2
    await until_ended(connection, SESSION)
    assert (await alice.acquire(SESSION)).lease.token == 3


async def test_a_refused_call_changes_nothing(alice: Holder, bob: Holder, connection: Connection) -> None:
    before = (await alice.acquire(SESSION)).lease
    with pytest.raises(FailedPrecondition):
        await bob.acquire(SESSION, request_id="one")
    assert await alice.get(SESSION) == before
    await alice.release(SESSION, 1)
    # Refusals are not stored: the same id may get the lease later.
    assert (await bob.acquire(SESSION, request_id="one")).lease.token == 2


async def test_a_repeated_call_finds_its_lease_as_it_stands(alice: Holder) -> None:
    first = await alice.acquire(SESSION, request_id="one")
    [renewed] = await alice.renew((SESSION, 1))
    again = await alice.acquire(SESSION, request_id="one")
    assert (again.lease.token, again.lease.acquire_time) == (1, first.lease.acquire_time)
    assert again.lease.expire_time == renewed.expire_time
    assert decode(again.grant.payload).expire_time == renewed.expire_time.ToDatetime(tzinfo=UTC)


async def test_a_repeated_call_never_gets_a_second_lease(
    alice: Holder, bob: Holder, connection: Connection
) -> None:
    await alice.acquire(SESSION, request_id="one")
    await alice.release(SESSION, 1)
    with pytest.raises(Aborted) as after_release:
        await alice.acquire(SESSION, request_id="one")
    await bob.acquire(SESSION)
    with pytest.raises(Aborted) as while_another_holds:
        await alice.acquire(SESSION, request_id="one")
    await bob.release(SESSION, 2)
    await alice.acquire(SESSION, request_id="two")
    with pytest.raises(Aborted) as while_it_holds_by_another_call:
        await alice.acquire(SESSION, request_id="one")
    for caught in (after_release, while_another_holds, while_it_holds_by_another_call):
        assert caught.value.reason_name == "LEASE_STALE"
        assert caught.value.metadata == {"resource": SESSION, "request_id": "one"}


async def test_a_repeated_call_after_expiry_is_stale(alice: Holder, connection: Connection) -> None:
    await alice.acquire(SESSION, 0.05, request_id="one")
    await until_ended(connection, SESSION)
    with pytest.raises(Aborted) as caught:
        await alice.acquire(SESSION, 0.05, request_id="one")
    assert caught.value.reason_name == "LEASE_STALE"


@pytest.mark.parametrize(
    "other",
    [
        {"ttl": 31.0},
        {"endpoint": "127.0.0.1:1"},
        {"labels": {"role": "service"}},
        {"resource": "projects/p/sessions/other"},
    ],
    ids=["ttl", "endpoint", "labels", "resource"],
)
async def test_the_same_id_with_other_content_is_refused(alice: Holder, other: dict[str, object]) -> None:
    asked: dict[str, object] = {"resource": SESSION, "ttl": 30.0, "request_id": "one"}
    await alice.acquire(**asked)  # type: ignore[arg-type]
    with pytest.raises(AlreadyExists) as caught:
        await alice.acquire(**{**asked, **other})  # type: ignore[arg-type]
    assert caught.value.reason_name == "REQUEST_ID_REUSED"
    assert caught.value.metadata == {"holder": "alice/1", "request_id": "one"}
    assert [lease.resource for lease in (await alice.list_leases()).leases] == [SESSION]


async def test_ids_of_different_holders_do_not_meet(alice: Holder, bob: Holder) -> None:
    await alice.acquire(SESSION, request_id="one")
    with pytest.raises(FailedPrecondition) as caught:
        await bob.acquire(SESSION, request_id="one")
    assert caught.value.reason_name == "LEASE_HELD"
