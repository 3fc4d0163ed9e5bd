"""SQL of admission: a turn of the queue takes its session's slot, for transactions that hold the lock."""

from __future__ import annotations

from datetime import timedelta

from services.common.database import Connection
from services.session import records
from services.session.journal.rules import SessionJournal
from services.session.outbox.offers import Claim
from services.session.records import RecordKind


async def tell_admissions(connection: Connection, journal: SessionJournal) -> dict[str, int]:
    """Add the records of those that take the slot now, their users' messages; the seq of each."""
    first_seqs = {}
    for turn_id in journal.admitted:
        body = records.user_message(await _prompt_of(connection, journal, turn_id))
        first_seqs[turn_id] = journal.add_own(turn_id, RecordKind.USER_MESSAGE, body)
    return first_seqs


async def _prompt_of(connection: Connection, journal: SessionJournal, turn_id: str) -> bytes:
    if (known := journal.turns[turn_id].prompt) is not None:
        return known
    prompt: bytes = await connection.fetchval(
        "SELECT prompt FROM session.turns WHERE project = $1 AND session_id = $2 AND turn_id = $3",
        *journal.key,
        turn_id,
    )
    return prompt


async def save_admission(
    connection: Connection, journal: SessionJournal, turn_id: str, first_seq: int, hold: timedelta | None
) -> Claim:
    """QUEUED to ADMITTED: a statement of its own, after that which ended the turn before (T2).

    With `hold` the turn is claimed for so long, as the first attempt of whoever admits it.
    """
    rows = await connection.fetch(
        """
        WITH before AS (
            SELECT turn_id, runner_id, runtime_after FROM session.turns
            WHERE project = $1 AND session_id = $2 AND admit_time IS NOT NULL
            ORDER BY first_seq DESC
            LIMIT 1
        )
        UPDATE session.turns AS turn SET
            state = 'ADMITTED', phase = 'WAITING_FOR_RUNNER', first_seq = $4,
            admit_time = clock_timestamp(), queue_order = NULL, queue_expire_time = NULL, interrupts = false,
            dispatch_time = clock_timestamp() + coalesce($5, interval '0'),
            dispatch_attempts = ($5::interval IS NOT NULL)::int,
            previous_turn_id = coalesce((SELECT turn_id FROM before), '')
        FROM session.sessions AS session
        WHERE turn.project = $1 AND turn.session_id = $2 AND turn.turn_id = $3 AND turn.state = 'QUEUED'
          AND session.project = $1 AND session.session_id = $2
        RETURNING turn.traceparent, session.profile,
            (SELECT runner_id FROM before WHERE runtime_after = 'WARM') AS kept_by
        """,
        *journal.key,
        turn_id,
        first_seq,
        hold,
    )
    return Claim(
        key=journal.key,
        turn_id=turn_id,
        profile=rows[0]["profile"],
        traceparent=rows[0]["traceparent"],
        endpoint="",
        attempts=1,
        overdue=False,
        kept_by=rows[0]["kept_by"] or "",
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
