"""ReleaseLease, GetLease, ListLeases."""

from __future__ import annotations

import pytest

from services.common.errors import Aborted, InvalidArgument, NotFound
from tests.owner.replicas import Connection, Holder, until_ended


async def test_release_ends_the_lease_now_and_keeps_the_row(alice: Holder) -> None:
    granted = (await alice.acquire("runners/a")).lease
    released = await alice.release("runners/a", 1)
    assert (released.token, released.holder, released.live) == (1, "alice/1", False)
    assert released.acquire_time == granted.acquire_time
    assert granted.acquire_time.ToDatetime() <= released.expire_time.ToDatetime()
    assert released.expire_time.ToDatetime() < granted.expire_time.ToDatetime()
    assert await alice.get("runners/a") == released


async def test_a_repeated_release_changes_nothing(alice: Holder) -> None:
    await alice.acquire("runners/a")
    assert await alice.release("runners/a", 1) == await alice.release("runners/a", 1)


async def test_releasing_an_expired_lease_keeps_its_end(alice: Holder, connection: Connection) -> None:
    granted = (await alice.acquire("runners/a", 0.05)).lease
    await until_ended(connection, "runners/a")
    assert (await alice.release("runners/a", 1)).expire_time == granted.expire_time


@pytest.mark.parametrize(("holder", "token"), [("bob", 1), ("alice", 2)])
async def test_only_holder_and_token_of_the_row_release(
    alice: Holder, bob: Holder, holder: str, token: int
) -> None:
    before = (await alice.acquire("runners/a")).lease
    with pytest.raises(Aborted) as caught:
        await {"alice": alice, "bob": bob}[holder].release("runners/a", token)
    assert caught.value.reason_name == "LEASE_STALE"
    assert caught.value.metadata == {"resource": "runners/a", "holder": f"{holder}/1", "token": str(token)}
    assert await alice.get("runners/a") == before


async def test_releasing_after_another_took_it_is_stale(alice: Holder, bob: Holder) -> None:
    await alice.acquire("runners/a")
    await alice.release("runners/a", 1)
    before = (await bob.acquire("runners/a")).lease
    with pytest.raises(Aborted):
        await alice.release("runners/a", 1)
    assert await bob.get("runners/a") == before


async def test_releasing_what_was_never_leased_is_stale(alice: Holder) -> None:
    with pytest.raises(Aborted) as caught:
        await alice.release("runners/a", 1)
    assert caught.value.reason_name == "LEASE_STALE"


async def test_a_lease_that_never_was_is_not_found(alice: Holder) -> None:
    with pytest.raises(NotFound) as caught:
        await alice.get("runners/a")
    assert (caught.value.reason_name, caught.value.metadata) == ("LEASE_NOT_FOUND", {"resource": "runners/a"})


async def test_live_is_judged_by_the_databases_clock(alice: Holder, connection: Connection) -> None:
    await alice.acquire("runners/a", 0.2)
    assert (await alice.get("runners/a")).live
    await until_ended(connection, "runners/a")
    assert not (await alice.get("runners/a")).live


async def test_a_prefix_is_taken_literally(alice: Holder) -> None:
    """`_` and `-` are no wildcards, and nothing that only sorts near it is found."""
    for resource in ("run", "run_a", "runXa", "run-a", "run_", "run_a/b", "rum", "ruo", "runz"):
        await alice.acquire(resource)

    async def found(prefix: str) -> list[str]:
        return [lease.resource for lease in (await alice.list_leases(prefix)).leases]

    assert await found("run_") == ["run_", "run_a", "run_a/b"]
    assert await found("run-") == ["run-a"]
    assert await found("run") == ["run", "run-a", "runXa", "run_", "run_a", "run_a/b", "runz"]
    assert await found("zzz") == []
    assert len(await found("")) == 9


async def test_pages_follow_each_other_in_order(alice: Holder) -> None:
    names = [f"runners/{number:02}" for number in range(7)]
    for name in reversed(names):
        await alice.acquire(name)
    await alice.acquire("instances/a")
    found, sizes, token = [], [], ""
    while True:
        page = await alice.list_leases("runners/", page_size=3, page_token=token)
        found += [lease.resource for lease in page.leases]
        sizes.append(len(page.leases))
        if not (token := page.next_page_token):
            break
    assert (found, sizes) == (names, [3, 3, 1])


async def test_a_full_last_page_has_no_successor(alice: Holder) -> None:
    await alice.acquire("runners/a")
    assert (await alice.list_leases(page_size=1)).next_page_token == ""


async def test_live_only_leaves_out_what_has_ended(alice: Holder) -> None:
    for name in ("runners/a", "runners/b"):
        await alice.acquire(name)
    await alice.release("runners/a", 1)
    live = await alice.list_leases("runners/", live_only=True)
    assert [lease.resource for lease in live.leases] == ["runners/b"]
    both = await alice.list_leases("runners/")
    assert [(lease.resource, lease.live) for lease in both.leases] == [
        ("runners/a", False),
        ("runners/b", True),
    ]


async def test_a_token_of_another_listing_is_refused(alice: Holder) -> None:
    for name in ("runners/a", "runners/b"):
        await alice.acquire(name)
    token = (await alice.list_leases("runners/", page_size=1)).next_page_token
    for prefix, options in (("", {}), ("runners/", {"live_only": True})):
        with pytest.raises(InvalidArgument) as caught:
            await alice.list_leases(prefix, page_token=token, **options)
        assert caught.value.violations[0].field == "page_token"
