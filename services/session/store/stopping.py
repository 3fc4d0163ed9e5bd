"""StopTurn's transaction (S1): replay, target, command, the turn's mark; delivery comes after the commit."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Final

from services.common.clock import Clock
from services.common.database import Connection
from services.session.commands import Command, NothingToStop, StopClaim, StopDraft, target_of
from services.session.journal.locked import JournalTurn
from services.session.journal.rules import SessionJournal
from services.session.requests import RequestKey
from services.session.store.commands import insert_open, insert_settled, open_command
from services.session.store.requests import claim_request, rename_request
from services.session.store.running import exceeded_bound
from services.session.store.writing import Writer, require

# Whoever stores a Stop delivers it at once. Should it die meanwhile, others do after so long.
_HOLD: Final = timedelta(seconds=2)


class StopStore:
    """Stores Stops."""

    def __init__(self, writer: Writer, clock: Clock, *, patience: float) -> None:
        """`patience`: seconds after which a Stop that nobody carried out is given up on."""
        self._writer = writer
        self._clock = clock
        self._patience = timedelta(seconds=patience)

    async def stop(
        self, draft: StopDraft, key: RequestKey, deliver: Callable[[StopClaim], None] | None = None
    ) -> str:
        """Store a Stop; the id of its command, or of the one that it shares or repeats.

        Refused, it stores nothing: SessionNotFound, TurnMismatch, RequestIdReused. With `deliver`
        a new open one is stored as claimed, and handed to it after the commit.
        """
        claim: StopClaim | None = None
        async with self._writer.open("stop_turn") as write:
            names = await claim_request(write.connection, key, {"command_id": draft.command_id})
            if names is not None:
                return names["command_id"]
            wanted = [draft.expected_turn_id] if draft.expected_turn_id else []
            journals = await write.lock({draft.key: wanted})
            journal = require(journals, draft.key)
            command = await self._store(write.connection, journal, draft, _HOLD if deliver else None)
            if command.command_id != draft.command_id:
                await rename_request(write.connection, key, {"command_id": command.command_id})
            else:
                claim = _claim_of(journal, draft, command)
        if deliver is not None and claim is not None:
            deliver(claim)
        return command.command_id

    async def stop_exceeding(self, draft: StopDraft, margin: timedelta) -> bool:
        """Stop the named turn if it exceeded a bound longer than `margin` ago, for that reason; whether it did."""
        async with self._writer.open("stop_exceeding") as write:
            journals = await write.lock({draft.key: [draft.expected_turn_id]})
            reason = await exceeded_bound(write.connection, draft.key, draft.expected_turn_id, margin)
            if reason is None:
                return False
            ordered = replace(draft, end_reason=reason)
            await self._store(write.connection, require(journals, draft.key), ordered)
        return True

    async def _store(
        self,
        connection: Connection,
        journal: SessionJournal,
        draft: StopDraft,
        hold: timedelta | None = None,
    ) -> Command:
        # Whoever names the turn may come as late as they like.
        arrival = None if draft.expected_turn_id else await self._arrival(connection, draft)
        target = target_of(journal, draft.expected_turn_id, arrival)
        if isinstance(target, NothingToStop):
            return await insert_settled(connection, draft, target)
        return await self.stop_within(connection, journal, target, draft, hold)

    async def stop_within(
        self,
        connection: Connection,
        journal: SessionJournal,
        target: JournalTurn,
        draft: StopDraft,
        hold: timedelta | None = None,
    ) -> Command:
        """Stop a turn that has not ended, in the transaction that locked its session; Stops share a command."""
        if target.stopping:
            command = await open_command(connection, draft.key, target.turn_id)
        else:
            command = await insert_open(connection, draft, target.turn_id, self._patience, hold)
        journal.stop(target, draft.command_id, draft.end_reason)
        return command

    async def _arrival(self, connection: Connection, draft: StopDraft) -> datetime:
        """When the call arrived, by the database's clock."""
        # Measured before the clock is asked: an error goes against turns that nobody can have seen yet.
        elapsed = timedelta(seconds=self._clock.boottime() - draft.entered)
        arrival: datetime = await connection.fetchval("SELECT clock_timestamp() - $1::interval", elapsed)
        return arrival


def _claim_of(journal: SessionJournal, draft: StopDraft, command: Command) -> StopClaim | None:
    """What is to be delivered of a new command; None when its turn is not begun, or there is none."""
    turn = journal.turns.get(command.turn_id or "")
    if turn is None or not turn.stopping or turn.attempt_id is None:
        return None
    return StopClaim(
        key=draft.key,
        command_id=command.command_id,
        turn_id=turn.turn_id,
        attempt_id=turn.attempt_id,
        traceparent=draft.traceparent,
        attempts=1,
        new_for=turn.runner_id or "",
    )
