"""Deleting as it is stored: what overtakes what, when a session is gone, and rows in small transactions."""

from __future__ import annotations

import pytest

from services.common.database import Database
from services.common.errors import AlreadyExists, NotFound
from services.session.close.closing import CloseClaim
from services.session.requests import RequestIdReused, RequestKey
from services.session.sessions import OperationKind
from services.session.store.closing import CloseStore
from services.session.store.deleting import DeleteStore
from services.session.store.takeover import TakeoverStore
from tests.session import samples
from tests.session.desks import Desk
from tests.session.starts import writer_of
from tests.session.tables import remains, tombstones
from tests.session.test_close_store import HOLD, KEY, close, stored


@pytest.fixture
def closes(database: Database) -> CloseStore:
    return CloseStore(database, writer_of(database))


@pytest.fixture
def store(database: Database) -> DeleteStore:
    return DeleteStore(database, writer_of(database))


async def delete(store: DeleteStore, request_id: str = "", fingerprint: bytes = b"") -> None:
    key = RequestKey("default", "s1", "DeleteSession", request_id, fingerprint)
    await store.delete(KEY, samples.TRACEPARENT, key)


async def claimed(closes: CloseStore) -> CloseClaim:
    await closes.hasten()
    [claim] = await closes.claim(9, hold=HOLD)
    return claim


async def test_whoever_still_closes_it_cannot_end_the_deletion(
    store: DeleteStore, closes: CloseStore, desk: Desk
) -> None:
    await desk.session()
    await close(closes)
    closing = await claimed(closes)
    await delete(store)
    deleting = await claimed(closes)
    assert (closing.operation, deleting.operation) == (OperationKind.CLOSE, OperationKind.DELETE)
    assert (closing.attempts, deleting.attempts) == (1, 1)
    assert not await closes.finish(closing)
    await closes.postpone(closing, 0.0, "of the close")
    assert not await closes.claim(9, hold=HOLD)
    operation = (await stored(desk)).operation
    assert operation is not None
    assert (operation.kind, operation.waiting_reason) == ("DELETE", "")
    await delete(store)
    await close(closes)
    assert not await closes.claim(9, hold=HOLD)


async def test_nothing_is_buried_alive(store: DeleteStore, closes: CloseStore, desk: Desk) -> None:
    holder = await desk.begun()
    await delete(store)
    claim = await claimed(closes)
    assert not await store.bury(claim)
    assert not await store.erase(KEY)
    await holder.finish()
    assert [await store.bury(claim), await store.bury(claim)] == [True, False]
    gone = await claimed(closes)
    assert (gone.gone, gone.operation, claim.gone) == (True, OperationKind.DELETE, False)
    with pytest.raises(NotFound):
        await holder.begin()
    assert not await closes.finish(claim)


async def test_rows_go_in_small_transactions_and_the_tombstone_stays(
    store: DeleteStore, closes: CloseStore, desk: Desk, database_url: str
) -> None:
    await desk.session("other")
    holder = await desk.begun(token=7)
    await holder.append(*range(1, 10))
    await holder.finish(last_turn_seq=9)
    for number in range(2, 5):
        await desk.turn(f"t{number}", request_id=f"r{number}")
        await desk.holder(turn_id=f"t{number}", token=7).begin()
        await desk.holder(turn_id=f"t{number}", token=7).finish()
    await delete(store, "r1")
    await store.bury(await claimed(closes))
    left = [await remains(database_url, "s1")]
    while await store.erase(KEY, 2):
        left.append(await remains(database_url, "s1"))
        assert not await store.is_erased(KEY)
    records = [each.get("records", 0) for each in left]
    # Three of each turn, and nine of the first one; the turns go after them, two at once.
    assert records == [21, *range(19, 0, -2), 0, *[0] * (len(records) - 12)]
    assert [each.get("turns", 0) for each in left][-5:] == [4, 2, 0, 0, 0]
    assert await remains(database_url, "s1") == {"sessions": 1, "request_ids": 1}
    assert await remains(database_url, "other") == {"sessions": 1}
    assert await tombstones(database_url) == {"s1": 7}
    assert await store.is_erased(KEY)
    assert not await store.erase(KEY)
    assert await closes.next_due() is None


async def test_a_deletion_is_repeated_by_its_request_id_and_by_no_other(
    store: DeleteStore, closes: CloseStore, desk: Desk
) -> None:
    with pytest.raises(NotFound):
        await delete(store, "r0")
    await desk.session()
    await delete(store, "r1")
    await store.bury(await claimed(closes))
    while await store.erase(KEY):
        pass
    await delete(store, "r1")
    for request_id in ("", "r2"):
        with pytest.raises(NotFound):
            await delete(store, request_id)
    with pytest.raises(RequestIdReused):
        await delete(store, "r1", b"other")
    with pytest.raises(AlreadyExists):
        await desk.session()


async def test_a_holder_is_taken_from_what_is_deleted_and_not_from_what_is_gone(
    store: DeleteStore, closes: CloseStore, desk: Desk, database: Database
) -> None:
    takeovers = TakeoverStore(database)
    await desk.session()
    await delete(store)
    assert [each.key for each in await takeovers.stuck_closings(0.0)] == [KEY]
    assert await takeovers.mark_closing(KEY, 4)
    await store.bury(await claimed(closes))
    assert await takeovers.stuck_closings(0.0) == []
    with pytest.raises(NotFound):
        await takeovers.mark_closing(KEY, 5)


async def test_sessions_of_the_same_name_elsewhere_stay(
    store: DeleteStore, closes: CloseStore, desk: Desk
) -> None:
    await desk.session()
    await desk.session(project="other")
    await delete(store)
    await store.bury(await claimed(closes))
    while await store.erase(KEY):
        pass
    assert await desk.token(project="other") == 0
    await desk.turn(project="other")
