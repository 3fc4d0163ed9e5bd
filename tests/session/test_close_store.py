"""Closing as it is stored: who takes it up, and what a session that is closing refuses (T1, S5)."""

from __future__ import annotations

import asyncio

import pytest

from services.common.database import Database
from services.common.errors import FailedPrecondition
from services.session.journal.rules import SessionKey
from services.session.requests import RequestKey
from services.session.sessions import Session, SessionNotFound, SessionState
from services.session.store.closing import CloseStore
from services.session.store.views import ViewStore
from tests.session import samples
from tests.session.desks import Desk
from tests.session.starts import writer_of

KEY = SessionKey("default", "s1")
HOLD = 60.0


@pytest.fixture
def store(database: Database) -> CloseStore:
    return CloseStore(database, writer_of(database))


async def close(store: CloseStore, session_id: str = "s1") -> None:
    key = RequestKey("default", session_id, "CloseSession", "", b"")
    await store.close(SessionKey("default", session_id), samples.TRACEPARENT, key)


async def stored(desk: Desk) -> Session:
    return (await ViewStore(desk.database).get(*KEY)).session


async def test_one_at_a_time_takes_it_up_and_goes_on_when_that_one_is_gone(
    store: CloseStore, desk: Desk
) -> None:
    assert await store.next_due() is None
    for name in ("s1", "s2"):
        await desk.session(name)
    await desk.session("open")
    await close(store, "s1")
    await close(store, "s2")
    taken = await asyncio.gather(*(store.claim(1, hold=HOLD) for _ in range(4)))
    first = next(claim for claims in taken for claim in claims if claim.key == KEY)
    assert sorted(claim.key.session_id for claims in taken for claim in claims) == ["s1", "s2"]
    assert (first.attempts, first.traceparent) == (1, samples.TRACEPARENT)
    assert 0 < (await store.next_due() or 0) <= HOLD
    await store.hasten()
    second = next(claim for claim in await store.claim(9, hold=HOLD) if claim.key == KEY)
    await store.postpone(first, 0.0, "what the one before waits for")
    assert not await store.claim(9, hold=HOLD)
    await store.postpone(second, 0.0, "its runner")
    await store.postpone(second, 0.0, None)
    operation = (await stored(desk)).operation
    assert operation is not None
    assert (operation.kind, operation.waiting_reason) == ("CLOSE", "its runner")
    assert [await store.finish(claim) for claim in (second, first)] == [True, False]
    session = await stored(desk)
    assert (session.state, session.operation) == (SessionState.CLOSED, None)
    await close(store)
    assert (await stored(desk)).state is SessionState.CLOSED


async def test_a_session_that_closes_begins_nothing_and_lets_go_on_what_was_begun(
    store: CloseStore, desk: Desk
) -> None:
    with pytest.raises(SessionNotFound):
        await close(store)
    running = await desk.begun("s1")
    await desk.session("s2")
    await desk.turn("t1", "s2")
    for name in ("s1", "s2"):
        await close(store, name)
    with pytest.raises(FailedPrecondition) as refused:
        await desk.holder("s2").begin()
    assert (refused.value.reason_name, refused.value.metadata["state"]) == ("SESSION_CLOSED", "CLOSING")
    assert await desk.token("s2") == 1
    assert len(await desk.transcript("s2")) == 1
    await running.begin()
    assert await running.append(1) == [3]
    await running.finish(last_turn_seq=1)
