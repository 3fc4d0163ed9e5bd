"""SQL of interactions, for transactions that hold their session's lock."""

from __future__ import annotations

from collections.abc import Sequence

import asyncpg

from services.common.database import Connection
from services.session.interactions import (
    Interaction,
    InteractionKind,
    InteractionNotFound,
    InteractionState,
    OpenedQuestion,
    Settlement,
)
from services.session.journal.locked import JournalTurn
from services.session.journal.rules import SessionJournal, SessionKey
from services.session.store.rows import values_of


async def save_questions(connection: Connection, journal: SessionJournal) -> None:
    """Store what was asked and decided, what begun turns wait for, and what is delivered no more."""
    for opened in journal.opened:
        await _insert(connection, journal.key, opened)
    if journal.settlements:
        await _settle(connection, journal.key, journal.settlements)
    for turn_id in journal.silenced:
        await _silence(connection, journal.key, turn_id)
    for turn_id in journal.asked:
        if (turn := journal.turns[turn_id]).state.begun:
            await _save_waiting(connection, journal.key, turn)


async def find_interaction(
    connection: Connection, key: SessionKey, interaction_id: str
) -> Interaction | None:
    """An interaction as it stands; under the session's lock it stays so."""
    row = await connection.fetchrow(
        "SELECT * FROM session.interactions WHERE project = $1 AND session_id = $2 AND interaction_id = $3",
        *key,
        interaction_id,
    )
    return interaction_of(row) if row else None


async def read_interaction(connection: Connection, key: SessionKey, interaction_id: str) -> Interaction:
    """An interaction as it stands. Raises InteractionNotFound."""
    if (found := await find_interaction(connection, key, interaction_id)) is None:
        raise InteractionNotFound(session_id=key.session_id, interaction_id=interaction_id)
    return found


async def overdue(connection: Connection, key: SessionKey) -> list[Interaction]:
    """The questions of a locked session that nobody answered in time."""
    rows = await connection.fetch(
        """
        SELECT * FROM session.interactions
        WHERE project = $1 AND session_id = $2 AND state = 'PENDING' AND expire_time <= clock_timestamp()
        ORDER BY seq
        """,
        *key,
    )
    return [interaction_of(row) for row in rows]


def interaction_of(row: asyncpg.Record) -> Interaction:
    """A whole row of session.interactions."""
    values = values_of(row, Interaction)
    values["kind"] = InteractionKind(row["kind"])
    values["state"] = InteractionState(row["state"])
    return Interaction(**values)


async def _insert(connection: Connection, key: SessionKey, opened: OpenedQuestion) -> None:
    await connection.execute(
        """
        INSERT INTO session.interactions
            (project, session_id, interaction_id, turn_id, turn_seq, seq, kind, question, expire_time)
        VALUES ($1, $2, $3, $4, $5, $6, $7, $8, clock_timestamp() + $9::interval)
        """,
        *key,
        opened.question.interaction_id,
        opened.turn_id,
        opened.turn_seq,
        opened.seq,
        opened.question.kind,
        opened.question.content,
        opened.timeout,
    )


async def _settle(connection: Connection, key: SessionKey, settlements: Sequence[Settlement]) -> None:
    await connection.execute(
        """
        UPDATE session.interactions AS interaction SET
            state = decided.state, option_id = decided.option_id, answer_values = decided.answer_values,
            settled_by = decided.settled_by,
            settle_time = clock_timestamp(),
            delivery_time = CASE WHEN decided.delivered THEN clock_timestamp() END
        FROM unnest($3::text[], $4::text[], $5::text[], $6::text[], $7::text[], $8::boolean[])
          AS decided (interaction_id, state, option_id, answer_values, settled_by, delivered)
        WHERE interaction.project = $1 AND interaction.session_id = $2
          AND interaction.interaction_id = decided.interaction_id AND interaction.state = 'PENDING'
        """,
        *key,
        [settlement.interaction_id for settlement in settlements],
        [settlement.state for settlement in settlements],
        [settlement.option_id for settlement in settlements],
        [settlement.values for settlement in settlements],
        [settlement.settled_by for settlement in settlements],
        [settlement.delivered for settlement in settlements],
    )


async def _silence(connection: Connection, key: SessionKey, turn_id: str) -> None:
    await connection.execute(
        """
        UPDATE session.interactions SET delivery_time = NULL
        WHERE project = $1 AND session_id = $2 AND turn_id = $3 AND delivery_time IS NOT NULL
        """,
        *key,
        turn_id,
    )


async def _save_waiting(connection: Connection, key: SessionKey, turn: JournalTurn) -> None:
    await connection.execute(
        """
        UPDATE session.turns SET state = $4, pending_interaction_ids = $5
        WHERE project = $1 AND session_id = $2 AND turn_id = $3 AND state IN ('RUNNING', 'AWAITING_INPUT')
        """,
        *key,
        turn.turn_id,
        turn.state,
        turn.pending,
    )
