"""The turns table: admission (T1) and reading."""

from __future__ import annotations

from collections.abc import Sequence

import asyncpg
from moorage.common.v1 import record_pb2

from services.common.database import Connection, Database
from services.common.failpoints import failpoint
from services.session import bindings, turns
from services.session.journal import SessionKey
from services.session.records import RecordKind, record_id
from services.session.requests import RequestKey
from services.session.sessions import Session, check_open
from services.session.store.commands import is_withdrawn
from services.session.store.records import append_service_record
from services.session.store.requests import claim_request
from services.session.store.rows import PAGE_BYTES, Page, snapshot, values_of
from services.session.store.sessions import lock_session, read_session
from services.session.turns import (
    EndReason,
    NewTurn,
    Turn,
    TurnAlreadyExists,
    TurnNotFound,
    TurnPhase,
    TurnState,
    TurnWithdrawn,
)


class TurnStore:
    """Turns; each method is one statement or one transaction."""

    def __init__(self, database: Database) -> None:
        """The service's database."""
        self._database = database

    async def start(self, draft: NewTurn, key: RequestKey) -> Turn:
        """Admit a turn, or return the one that another call with this key has admitted.

        Refused, it stores nothing: SessionNotFound, SessionClosed, BindingUnresolved,
        TurnAlreadyExists, TurnWithdrawn, TurnInProgress, RequestIdReused.
        """
        try:
            turn = await self._start(draft, key)
        except asyncpg.UniqueViolationError:
            # The index refused what took the slot without the session's lock; now it can be seen.
            turn = await self._start(draft, key)
        await failpoint("session.start_turn.after_commit")
        return turn

    async def get(self, project: str, session_id: str, turn_id: str) -> Turn:
        """A turn as it stands. Raises SessionNotFound, TurnNotFound."""
        async with snapshot(self._database) as connection:
            await read_session(connection, project, session_id)
            return await read_turn(connection, project, session_id, turn_id)

    async def list_newest(self, project: str, session_id: str, before: int, limit: int) -> Page[Turn]:
        """The turns below a number, newest first. Raises SessionNotFound."""
        async with snapshot(self._database) as connection:
            await read_session(connection, project, session_id)
            rows = await connection.fetch(
                """
                SELECT * FROM (
                    SELECT newest.*, count(*) OVER () AS found,
                           sum(bytes) OVER (ORDER BY number DESC) - bytes AS bytes_before
                    FROM (
                        SELECT turns.*, 1024 + octet_length(prompt) AS bytes FROM session.turns
                        WHERE project = $1 AND session_id = $2 AND number < $3
                        ORDER BY number DESC
                        LIMIT $4 + 1
                    ) AS newest
                ) AS page
                WHERE bytes_before < $5
                ORDER BY number DESC
                LIMIT $4
                """,
                project,
                session_id,
                before,
                limit,
                PAGE_BYTES,
            )
        turns = [turn_of(row) for row in rows]
        return Page(turns, more=bool(rows) and rows[0]["found"] > len(turns))

    async def _start(self, draft: NewTurn, key: RequestKey) -> Turn:
        async with self._database.transaction() as connection:
            names = await claim_request(connection, key, {"turn_id": draft.turn_id})
            if names is not None:
                return await read_turn(connection, draft.project, draft.session_id, names["turn_id"])
            session = await lock_session(connection, draft.project, draft.session_id)
            check_open(session)
            bindings.load(session.binding_kind, session.binding)
            await _check_free(connection, draft)
            turn = await _admit(connection, draft, session)
            await failpoint("session.start_turn.before_commit")
        return turn


async def read_turn(connection: Connection, project: str, session_id: str, turn_id: str) -> Turn:
    """A turn as it stands; under the session's lock it stays so. Raises TurnNotFound."""
    if turn := await find_turn(connection, project, session_id, turn_id):
        return turn
    raise TurnNotFound(session_id=session_id, turn_id=turn_id)


async def find_turn(connection: Connection, project: str, session_id: str, turn_id: str) -> Turn | None:
    """A turn as it stands, None without one."""
    row = await connection.fetchrow(
        "SELECT * FROM session.turns WHERE project = $1 AND session_id = $2 AND turn_id = $3",
        project,
        session_id,
        turn_id,
    )
    return None if row is None else turn_of(row)


async def turn_in_progress(connection: Connection, project: str, session_id: str) -> Turn | None:
    """The turn that has the session's slot."""
    return (await turns_in_progress(connection, project, [session_id])).get(session_id)


async def turns_in_progress(
    connection: Connection, project: str, session_ids: Sequence[str]
) -> dict[str, Turn]:
    """The turns that have the slots of these sessions, by session."""
    rows = await connection.fetch(
        """
        SELECT * FROM session.turns
        WHERE project = $1 AND session_id = ANY($2::text[])
          AND state IN ('ADMITTED', 'RUNNING', 'AWAITING_INPUT')
        """,
        project,
        session_ids,
    )
    return {row["session_id"]: turn_of(row) for row in rows}


def turn_of(row: asyncpg.Record) -> Turn:
    """A whole row of session.turns."""
    values = values_of(row, Turn)
    values["state"] = TurnState(row["state"])
    values["end_reason"] = row["end_reason"] and EndReason(row["end_reason"])
    values["phase"] = row["phase"] and TurnPhase(row["phase"])
    return Turn(**values)


async def _check_free(connection: Connection, draft: NewTurn) -> None:
    taken = await connection.fetchval(
        "SELECT true FROM session.turns WHERE project = $1 AND session_id = $2 AND turn_id = $3",
        draft.project,
        draft.session_id,
        draft.turn_id,
    )
    if taken:
        raise TurnAlreadyExists(session_id=draft.session_id, turn_id=draft.turn_id)
    if await is_withdrawn(connection, SessionKey(draft.project, draft.session_id), draft.turn_id):
        raise TurnWithdrawn(session_id=draft.session_id, turn_id=draft.turn_id)
    if busy := await turn_in_progress(connection, draft.project, draft.session_id):
        raise turns.in_progress(busy)


async def _admit(connection: Connection, draft: NewTurn, session: Session) -> Turn:
    rows = await connection.fetch(
        """
        INSERT INTO session.turns (project, session_id, turn_id, prompt, traceparent, first_seq,
            state, phase, number, previous_turn_id)
        SELECT $1, $2, $3, $4, $5, $6, 'ADMITTED', 'WAITING_FOR_RUNNER',
            coalesce(latest.number, 0) + 1, coalesce(latest.turn_id, '')
        FROM (VALUES (true)) AS always
        LEFT JOIN LATERAL (
            SELECT turns.number, turns.turn_id FROM session.turns
            WHERE turns.project = $1 AND turns.session_id = $2
            ORDER BY turns.number DESC
            LIMIT 1
        ) AS latest ON true
        RETURNING *
        """,
        draft.project,
        draft.session_id,
        draft.turn_id,
        draft.prompt,
        draft.traceparent,
        session.head_seq + 1,
    )
    message = record_pb2.UserMessage.FromString(draft.prompt)
    await append_service_record(
        connection,
        project=draft.project,
        session_id=draft.session_id,
        turn_id=draft.turn_id,
        record_id=record_id(draft.turn_id, RecordKind.USER_MESSAGE),
        body=record_pb2.RecordBody(user_message=message),
    )
    return turn_of(rows[0])
