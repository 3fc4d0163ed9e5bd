"""The outbox in the database: who has a turn, for how long, and what is stored of it."""

from __future__ import annotations

import asyncio

import pytest

from services.common.database import Database
from services.session.journal.rules import SessionKey
from services.session.store.dispatch import DispatchStore
from tests.conditions import eventually
from tests.databases import execute, fetch_value
from tests.session.desks import Desk


async def test_a_begun_turn_is_not_given_up(desk: Desk) -> None:
    await desk.begun()
    assert not await desk.journal.give_up(SessionKey("default", "s1"), "t1", 0.0)
    await desk.session("s2")
    await desk.turn("t1", "s2")
    assert not await desk.journal.give_up(SessionKey("default", "s2"), "t1", 60.0)
    assert await desk.journal.give_up(SessionKey("default", "s2"), "t1", 0.0)


async def test_claims_at_once_never_give_a_turn_to_two(desk: Desk, database_url: str) -> None:
    store = DispatchStore(desk.database)
    for number in range(20):
        await desk.session(f"s{number}")
        await desk.turn("t1", f"s{number}")
    for _ in range(10):
        await execute(database_url, "UPDATE session.turns SET dispatch_time = clock_timestamp()")
        claims = await asyncio.gather(*(store.claim(20, hold=50.0, window=60.0) for _ in range(8)))
        claimed = [claim.key.session_id for part in claims for claim in part]
        assert len(claimed) == len(set(claimed))
        # What one claim skipped because another one had it locked is found by the next.
        assert len(claimed) + len(await store.claim(20, hold=50.0, window=60.0)) == 20


async def test_a_claim_of_a_replica_that_died_ends(desk: Desk) -> None:
    await desk.session()
    await desk.turn()
    store = DispatchStore(desk.database)
    (first,) = await store.claim(10, hold=0.3, window=60.0)
    assert await store.claim(10, hold=5.0, window=60.0) == []
    claims = []

    async def claimed() -> bool:
        claims.extend(await store.claim(10, hold=5.0, window=60.0))
        return bool(claims)

    await eventually(claimed)
    # What the dead one would still store is not stored any more.
    assert not await store.offer(first, "late")
    await store.postpone(first, 0.0, "late", window=60.0)
    turn = await desk.read_turn()
    assert (turn.dispatch_endpoint, turn.waiting_reason) == ("", "")
    assert await store.offer(claims[0], "right")


async def test_a_hint_is_stored_only_while_nobody_has_begun_the_turn(desk: Desk, database: Database) -> None:
    await desk.session()
    await desk.turn()
    store = DispatchStore(database)
    (claim,) = await store.claim(10, hold=5.0, window=60.0)
    await desk.holder().begin()
    begun = await desk.read_turn()
    assert not await store.offer(claim, "late")
    await store.postpone(claim, 0.0, "late", window=60.0)
    assert await desk.read_turn() == begun
    assert await store.next_due() is None


async def test_the_next_claim_is_never_after_the_window(desk: Desk, database_url: str) -> None:
    await desk.session()
    await desk.turn()
    store = DispatchStore(desk.database)
    (claim,) = await store.claim(10, hold=50.0, window=2.0)
    await store.postpone(claim, 50.0, "waits", window=2.0)
    left = await fetch_value(
        database_url, "SELECT extract(epoch FROM dispatch_time - admit_time)::float8 FROM session.turns"
    )
    assert left == pytest.approx(2.0)
