"""StartTurn's transaction (T1, T2): replay, guards, the turn's place; a free slot is taken at once."""

from __future__ import annotations

import asyncpg

from services.common.database import Connection
from services.common.validation import mint_id
from services.session import bindings, queue, turns
from services.session.commands import StopDraft
from services.session.journal.locked import JournalTurn, QueuePlace
from services.session.journal.rules import SessionJournal, SessionKey
from services.session.queue import QueueBounds, QueueFull
from services.session.requests import RequestKey
from services.session.sessions import check_open
from services.session.store.commands import is_withdrawn
from services.session.store.requests import claim_request
from services.session.store.sessions import read_session
from services.session.store.stopping import StopStore
from services.session.store.turns import read_turn
from services.session.store.writing import Write, Writer, require
from services.session.turns import (
    EndReason,
    IfBusy,
    NewTurn,
    TurnAlreadyExists,
    TurnState,
    TurnWithdrawn,
)


class StartStore:
    """Admits and queues turns."""

    def __init__(self, writer: Writer, stops: StopStore, bounds: QueueBounds) -> None:
        """`stops` is how an interrupting turn stops the one in progress."""
        self._writer = writer
        self._stops = stops
        self._bounds = bounds

    async def start(self, draft: NewTurn, key: RequestKey) -> str:
        """Store a turn; its id, or that of the turn which another call with this key has stored.

        Refused, it stores nothing: SessionNotFound, SessionClosed, BindingUnresolved,
        TurnAlreadyExists, TurnWithdrawn, TurnInProgress, QueueFull, RequestIdReused.
        """
        try:
            return await self._start(draft, key)
        except asyncpg.UniqueViolationError:
            # An index refused what was stored without the session's lock; now it can be seen.
            return await self._start(draft, key)

    async def _start(self, draft: NewTurn, key: RequestKey) -> str:
        async with self._writer.open("start_turn") as write:
            names = await claim_request(write.connection, key, {"turn_id": draft.turn_id})
            if names is not None:
                return names["turn_id"]
            session = SessionKey(draft.project, draft.session_id)
            journal = require(await write.lock({session: [draft.turn_id]}), session)
            await _check_startable(write.connection, journal, draft)
            await self._place(write, journal, draft)
        return draft.turn_id

    async def _place(self, write: Write, journal: SessionJournal, draft: NewTurn) -> None:
        """In the queue first, also on an idle session: from there every turn takes the slot."""
        busy = journal.in_progress
        interrupts = busy is not None and draft.if_busy is IfBusy.INTERRUPT
        if busy is not None and draft.if_busy is IfBusy.REJECT:
            raise turns.in_progress(await read_turn(write.connection, *journal.key, busy.turn_id))
        # Before anything leaves the queue: what ends in this transaction still has its row's order.
        place = queue.new_place(journal.queue, interrupt=interrupts)
        journal.expire_queue()
        await _insert(write.connection, draft, place, self._bounds)
        turn = _new_turn(draft, place)
        journal.turns[draft.turn_id] = turn
        if busy is None:
            journal.admit(turn)
        elif interrupts:
            await self._stops.stop_within(write.connection, journal, busy, _stop_of(draft))
        if len(journal.queue) > self._bounds.limit:
            raise QueueFull(session_id=draft.session_id, limit=self._bounds.limit)


def _stop_of(draft: NewTurn) -> StopDraft:
    return StopDraft(
        key=SessionKey(draft.project, draft.session_id),
        command_id=mint_id("command"),
        expected_turn_id="",
        traceparent=draft.traceparent,
        entered=0.0,
        end_reason=EndReason.INTERRUPTED,
    )


def _new_turn(draft: NewTurn, place: QueuePlace) -> JournalTurn:
    return JournalTurn(
        turn_id=draft.turn_id,
        state=TurnState.QUEUED,
        end_reason=None,
        phase=None,
        token=None,
        attempt_id=None,
        runner_id=None,
        prompt_sent=False,
        last_turn_seq=0,
        stopped_for=None,
        admit_time=None,
        pending=[],
        place=place,
        prompt=draft.prompt,
    )


async def _check_startable(connection: Connection, journal: SessionJournal, draft: NewTurn) -> None:
    session = await read_session(connection, *journal.key)
    check_open(session)
    bindings.load(session.binding_kind, session.binding)
    if draft.turn_id in journal.turns:
        raise TurnAlreadyExists(session_id=draft.session_id, turn_id=draft.turn_id)
    if await is_withdrawn(connection, journal.key, draft.turn_id):
        raise TurnWithdrawn(session_id=draft.session_id, turn_id=draft.turn_id)


async def _insert(connection: Connection, draft: NewTurn, place: QueuePlace, bounds: QueueBounds) -> None:
    await connection.execute(
        """
        INSERT INTO session.turns (project, session_id, turn_id, prompt, traceparent, state,
            queue_order, interrupts, queue_expire_time, number)
        SELECT $1, $2, $3, $4, $5, 'QUEUED', $6, $7, clock_timestamp() + $8::interval, 1 + coalesce((
            SELECT number FROM session.turns
            WHERE project = $1 AND session_id = $2
            ORDER BY number DESC
            LIMIT 1
        ), 0)
        """,
        draft.project,
        draft.session_id,
        draft.turn_id,
        draft.prompt,
        draft.traceparent,
        place.order,
        place.interrupt,
        bounds.expiry,
    )
