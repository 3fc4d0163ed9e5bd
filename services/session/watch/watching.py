"""Watching: the transcript from a cursor on, and whatever comes, until the watcher leaves (R5)."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from typing import Final, TypeVar

from services.common.clock import Clock
from services.common.errors import ShuttingDown, Unavailable
from services.session.journal.rules import SessionKey
from services.session.records import Heartbeat, Record, RecordKind, RecordPage
from services.session.store.records import RecordStore
from services.session.store.turns import TurnStore
from services.session.store.watch import WatchStore
from services.session.turns import Turn
from services.session.watch.hub import Hub, Subscription

ItemT = TypeVar("ItemT")

# A page is all that a watcher holds.
_PAGE: Final = 200
# While the database is away.
_RETRY: Final = 1.0


class Watching:
    """Watches of sessions and turns in this process; a watch outlives outages of the database."""

    def __init__(
        self,
        records: RecordStore,
        turns: TurnStore,
        store: WatchStore,
        clock: Clock,
        *,
        heartbeat: float,
        poll: float,
    ) -> None:
        """`heartbeat`: seconds of silence before a sign of life; `poll`: see Hub."""
        self._records = records
        self._turns = turns
        self._clock = clock
        self._heartbeat = heartbeat
        self._poll = poll
        self._hub = Hub(store, clock, poll=poll)

    async def run(self) -> None:
        """The background loops."""
        await self._hub.run()

    async def drain(self) -> None:
        """End all watches with what they have seen, before the server stops."""
        await self._hub.close()

    def changed(self, project: str, session_id: str) -> None:
        """Records of a session were committed."""
        self._hub.changed(SessionKey(project, session_id))

    async def wait_for(
        self,
        key: SessionKey,
        read: Callable[[], Awaitable[ItemT]],
        done: Callable[[ItemT], bool],
        seconds: float,
    ) -> ItemT:
        """What `read` gives when it is done, or after so many seconds; it is read with each change.

        Raises what `read` does, and ShuttingDown.
        """
        deadline = self._clock.boottime() + seconds
        with self._hub.subscribe(key) as subscription:
            while not done(item := await read()):
                left = deadline - self._clock.boottime()
                if left <= 0:
                    break
                if self._hub.closed:
                    raise ShuttingDown
                await subscription.bell.wait(min(left, self._poll))
            return item

    async def check_cursor(self, project: str, session_id: str, after_seq: int) -> None:
        """Refuse a seq that nobody can have seen. Raises SessionNotFound, CursorOutOfRange."""
        if after_seq:
            await self._records.page(project, session_id, after_seq, limit=1)

    async def watch_session(
        self, project: str, session_id: str, after_seq: int
    ) -> AsyncGenerator[Record | Heartbeat, None]:
        """The session's records after a seq, for ever.

        Raises SessionNotFound, CursorOutOfRange; ShuttingDown with `last_seq`, the last one given.
        """
        async with aclosing(self._follow(SessionKey(project, session_id), after_seq, None)) as events:
            async for event in events:
                yield event

    async def watch_turn(
        self, project: str, session_id: str, turn_id: str, after_seq: int
    ) -> AsyncGenerator[Record | Heartbeat | Turn, None]:
        """A turn's records after a seq; the last item is the ended turn.

        Raises as watch_session does, and TurnNotFound.
        """
        key = SessionKey(project, session_id)
        turn = await self._turns.get(project, session_id, turn_id)
        if turn.end_time is not None and after_seq >= turn.last_seq:
            await self._records.page(*key, after_seq, limit=1)
        else:
            async with aclosing(self._follow(key, after_seq, turn_id)) as events:
                async for event in events:
                    yield event
                    if isinstance(event, Record) and event.kind == RecordKind.TURN_ENDED:
                        break
            turn = await self._turns.get(project, session_id, turn_id)
        yield turn

    async def _follow(
        self, key: SessionKey, after_seq: int, turn_id: str | None
    ) -> AsyncGenerator[Record | Heartbeat, None]:
        with self._hub.subscribe(key) as subscription:
            page = await self._records.page(*key, after_seq, limit=_PAGE, turn_id=turn_id)
            spoke, looked = self._clock.boottime(), after_seq
            while True:
                for record in page.records:
                    yield record
                    after_seq, spoke = record.seq, self._clock.boottime()
                # A turn that waits in the queue is not to be looked for among all records each time.
                looked = after_seq if page.records else page.head_seq
                subscription.seen = max(subscription.seen, page.head_seq)
                caught_up = not page.records or after_seq >= page.head_seq
                if caught_up and not self._hub.closed:
                    await subscription.bell.wait(spoke + self._heartbeat - self._clock.boottime())
                if self._hub.closed:
                    raise ShuttingDown(last_seq=after_seq)
                if self._clock.boottime() - spoke >= self._heartbeat:
                    yield Heartbeat(subscription.seen, self._clock.now())
                    spoke = self._clock.boottime()
                page = await self._next(key, looked, turn_id, subscription)

    async def _next(
        self, key: SessionKey, after_seq: int, turn_id: str | None, subscription: Subscription
    ) -> RecordPage:
        try:
            return await self._records.page(*key, after_seq, limit=_PAGE, turn_id=turn_id)
        except Unavailable:
            await self._clock.sleep(_RETRY)
            subscription.bell.ring()
            # Nothing was read, so nothing is passed over either.
            return RecordPage((), after_seq)
