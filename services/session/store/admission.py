"""SQL of admission: a turn of the queue takes its session's slot, for transactions that hold the lock."""

from __future__ import annotations

from services.common.database import Connection
from services.session import records
from services.session.journal import SessionJournal
from services.session.records import RecordKind


async def tell_admissions(connection: Connection, journal: SessionJournal) -> dict[str, int]:
    """Add the records of those that take the slot now, their users' messages; the seq of each."""
    first_seqs = {}
    for turn_id in journal.admitted:
        prompt = await connection.fetchval(
            "SELECT prompt FROM session.turns WHERE project = $1 AND session_id = $2 AND turn_id = $3",
            *journal.key,
            turn_id,
        )
        body = records.user_message(prompt)
        first_seqs[turn_id] = journal.add_own(turn_id, RecordKind.USER_MESSAGE, body)
    return first_seqs


async def save_admission(
    connection: Connection, journal: SessionJournal, turn_id: str, first_seq: int
) -> None:
    """QUEUED to ADMITTED: a statement of its own, after that which ended the turn before (T2)."""
    await connection.execute(
        """
        UPDATE session.turns AS turn SET
            state = 'ADMITTED', phase = 'WAITING_FOR_RUNNER', first_seq = $4,
            admit_time = clock_timestamp(), dispatch_time = clock_timestamp(),
            queue_order = NULL, queue_expire_time = NULL, interrupts = false,
            previous_turn_id = coalesce((
                SELECT before.turn_id FROM session.turns AS before
                WHERE before.project = $1 AND before.session_id = $2 AND before.admit_time IS NOT NULL
                ORDER BY before.first_seq DESC
                LIMIT 1
            ), '')
        WHERE turn.project = $1 AND turn.session_id = $2 AND turn.turn_id = $3 AND turn.state = 'QUEUED'
        """,
        *journal.key,
        turn_id,
        first_seq,
    )


async def save_holding(connection: Connection, journal: SessionJournal) -> None:
    """Let no turn of the queue interrupt any more."""
    await connection.execute(
        """
        UPDATE session.turns SET interrupts = false
        WHERE project = $1 AND session_id = $2 AND state = 'QUEUED' AND interrupts
        """,
        *journal.key,
    )
