"""Sessions under lock: what the journal judges writes by, and storing what it decided."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import timedelta

import asyncpg

from services.common.database import Connection
from services.session.journal.locked import JournalTurn, QueuePlace, StoredEnding
from services.session.journal.rules import SessionJournal, SessionKey
from services.session.outbox.offers import Claim
from services.session.sessions import SessionState
from services.session.store.admission import save_admission, save_holding, tell_admissions
from services.session.store.commands import settle_command
from services.session.store.questions import save_questions
from services.session.turns import EndReason, TurnPhase, TurnState

Journals = Mapping[SessionKey, SessionJournal]


async def lock_journals(connection: Connection, turns: Mapping[SessionKey, Collection[str]]) -> Journals:
    """Lock the sessions that exist, in the order of their keys; read these turns and all not ended."""
    keys = sorted(turns)
    rows = await connection.fetch(
        """
        SELECT session.project, session.session_id, session.token, session.begin_above,
               session.head_seq, session.state
        FROM session.sessions AS session
        JOIN unnest($1::text[], $2::text[]) AS wanted (project, session_id) USING (project, session_id)
        WHERE session.state <> 'DELETED'
        ORDER BY session.project COLLATE "C", session.session_id COLLATE "C"
        FOR NO KEY UPDATE OF session
        """,
        [key.project for key in keys],
        [key.session_id for key in keys],
    )
    journals = {
        (key := SessionKey(row["project"], row["session_id"])): SessionJournal(
            key=key,
            token=row["token"],
            begin_above=row["begin_above"],
            head_seq=row["head_seq"],
            is_open=row["state"] == SessionState.OPEN,
        )
        for row in rows
    }
    await _read_turns(connection, journals, turns)
    return journals


async def read_known(
    connection: Connection, journals: Journals, wanted: Iterable[tuple[SessionKey, str, int]]
) -> None:
    """Read what is stored under these turn_seqs, so that repeats are told from conflicts."""
    stored = [
        (key, turn_id, turn_seq)
        for key, turn_id, turn_seq in wanted
        if (journal := journals.get(key))
        and (turn := journal.turns.get(turn_id))
        and turn_seq <= turn.last_turn_seq
    ]
    if not stored:
        return
    rows = await connection.fetch(
        """
        SELECT record.project, record.session_id, record.turn_id, record.turn_seq, record.seq,
               record.body_hash
        FROM session.records AS record
        JOIN unnest($1::text[], $2::text[], $3::text[], $4::bigint[])
          AS wanted (project, session_id, turn_id, turn_seq)
          USING (project, session_id, turn_id, turn_seq)
        """,
        [key.project for key, _, _ in stored],
        [key.session_id for key, _, _ in stored],
        [turn_id for _, turn_id, _ in stored],
        [turn_seq for _, _, turn_seq in stored],
    )
    for row in rows:
        known = journals[SessionKey(row["project"], row["session_id"])].known
        known[row["turn_id"], row["turn_seq"]] = row["seq"], row["body_hash"]


async def save_journals(
    connection: Connection, journals: Iterable[SessionJournal], hold: timedelta | None = None
) -> list[Claim]:
    """Store records, endings with all that hangs on them (S10), tokens and numbers of the locked sessions.

    Endings come before the admission of the next turn: at no moment two have the slot. With
    `hold` whoever admits a turn has claimed it for so long; the turns admitted.
    """
    claims: list[Claim] = []
    changed = [journal for journal in journals if journal.changed]
    first_seqs = {journal.key: await tell_admissions(connection, journal) for journal in changed}
    await _save_transcripts(connection, [journal for journal in changed if journal.records or journal.raised])
    for journal in changed:
        await save_questions(connection, journal)
        for stored in journal.endings:
            await _save_ending(connection, journal, stored)
            await settle_command(connection, journal.key, stored)
        if journal.held:
            await save_holding(connection, journal)
        for turn_id, first_seq in first_seqs[journal.key].items():
            claims.append(await save_admission(connection, journal, turn_id, first_seq, hold))
    return claims


async def _read_turns(
    connection: Connection, journals: Journals, turns: Mapping[SessionKey, Collection[str]]
) -> None:
    named = [(key, turn_id) for key in journals for turn_id in turns[key]]
    rows = await connection.fetch(
        """
        SELECT project, session_id, turn_id, state, end_reason, phase, token, attempt_id, runner_id,
               prompt_sent, last_turn_seq, stop_end_reason, admit_time, pending_interaction_ids,
               queue_order, interrupts, queue_expire_time <= clock_timestamp() AS expired
        FROM session.turns
        JOIN unnest($1::text[], $2::text[], $3::text[]) AS named (project, session_id, turn_id)
          USING (project, session_id, turn_id)
        UNION ALL
        SELECT project, session_id, turn_id, state, end_reason, phase, token, attempt_id, runner_id,
               prompt_sent, last_turn_seq, stop_end_reason, admit_time, pending_interaction_ids,
               queue_order, interrupts, queue_expire_time <= clock_timestamp() AS expired
        FROM session.turns
        JOIN unnest($4::text[], $5::text[]) AS locked (project, session_id) USING (project, session_id)
        WHERE state IN ('ADMITTED', 'RUNNING', 'AWAITING_INPUT')
        UNION ALL
        SELECT project, session_id, turn_id, state, end_reason, phase, token, attempt_id, runner_id,
               prompt_sent, last_turn_seq, stop_end_reason, admit_time, pending_interaction_ids,
               queue_order, interrupts, queue_expire_time <= clock_timestamp() AS expired
        FROM session.turns
        JOIN unnest($4::text[], $5::text[]) AS locked (project, session_id) USING (project, session_id)
        WHERE state = 'QUEUED'
        """,
        [key.project for key, _ in named],
        [key.session_id for key, _ in named],
        [turn_id for _, turn_id in named],
        [key.project for key in journals],
        [key.session_id for key in journals],
    )
    for row in rows:
        journals[SessionKey(row["project"], row["session_id"])].turns[row["turn_id"]] = _turn_of(row)


async def _save_transcripts(connection: Connection, journals: Sequence[SessionJournal]) -> None:
    """New records, and with them numbers of their turns, numbers and tokens of their sessions: one round trip."""
    if not journals:
        return
    added = [(journal.key, record) for journal in journals for record in journal.records]
    grown = [(journal.key, journal.turns[turn_id]) for journal in journals for turn_id in journal.grown]
    await connection.execute(
        """
        WITH added AS (
            INSERT INTO session.records
                (project, session_id, seq, turn_id, turn_seq, record_id, kind, body, body_hash)
            SELECT * FROM unnest($1::text[], $2::text[], $3::bigint[], $4::text[], $5::bigint[],
                                 $6::text[], $7::text[], $8::bytea[], $9::bytea[])
        ),
        counted AS (
            UPDATE session.turns AS turn SET last_turn_seq = grown.last_turn_seq
            FROM unnest($14::text[], $15::text[], $16::text[], $17::bigint[])
              AS grown (project, session_id, turn_id, last_turn_seq)
            WHERE turn.project = grown.project AND turn.session_id = grown.session_id
              AND turn.turn_id = grown.turn_id
        )
        UPDATE session.sessions AS session SET head_seq = grown.head_seq, token = grown.token
        FROM unnest($10::text[], $11::text[], $12::bigint[], $13::bigint[])
          AS grown (project, session_id, head_seq, token)
        WHERE session.project = grown.project AND session.session_id = grown.session_id
        """,
        [key.project for key, _ in added],
        [key.session_id for key, _ in added],
        [record.seq for _, record in added],
        [record.turn_id for _, record in added],
        [record.turn_seq for _, record in added],
        [record.record_id for _, record in added],
        [record.kind for _, record in added],
        [record.body for _, record in added],
        [record.body_hash for _, record in added],
        [journal.key.project for journal in journals],
        [journal.key.session_id for journal in journals],
        [journal.head_seq for journal in journals],
        [journal.token for journal in journals],
        [key.project for key, _ in grown],
        [key.session_id for key, _ in grown],
        [turn.turn_id for _, turn in grown],
        [turn.last_turn_seq for _, turn in grown],
    )


async def _save_ending(connection: Connection, journal: SessionJournal, stored: StoredEnding) -> None:
    ending = stored.ending
    await connection.execute(
        """
        UPDATE session.turns SET
            state = $4, end_reason = $5, phase = NULL, waiting_reason = '', phase_deadline = NULL,
            stop_reason = $6, stop_method = $7, runtime_after = $8, error = $9, usage = $10,
            last_seq = $11, stop_deadline = NULL, stop_end_reason = NULL,
            pending_interaction_ids = '{}', end_time = clock_timestamp(),
            first_seq = coalesce(nullif(first_seq, 0), $12),
            queue_order = NULL, queue_expire_time = NULL, interrupts = false
        WHERE project = $1 AND session_id = $2 AND turn_id = $3 AND end_time IS NULL
        """,
        *journal.key,
        stored.turn_id,
        ending.state,
        ending.end_reason,
        ending.stop_reason,
        ending.stop_method,
        ending.runtime_after,
        None if ending.error is None else ending.error.SerializeToString(),
        None if ending.usage is None else ending.usage.SerializeToString(),
        stored.last_seq,
        journal.first_added(stored.turn_id),
    )


def _turn_of(row: asyncpg.Record) -> JournalTurn:
    return JournalTurn(
        turn_id=row["turn_id"],
        state=TurnState(row["state"]),
        end_reason=EndReason(row["end_reason"]) if row["end_reason"] else None,
        phase=TurnPhase(row["phase"]) if row["phase"] else None,
        token=row["token"],
        attempt_id=row["attempt_id"],
        runner_id=row["runner_id"],
        prompt_sent=row["prompt_sent"],
        last_turn_seq=row["last_turn_seq"],
        stopped_for=EndReason(row["stop_end_reason"]) if row["stop_end_reason"] else None,
        admit_time=row["admit_time"],
        pending=row["pending_interaction_ids"],
        place=_place_of(row) if row["state"] == TurnState.QUEUED else None,
    )


def _place_of(row: asyncpg.Record) -> QueuePlace:
    return QueuePlace(row["queue_order"], interrupt=row["interrupts"], expired=row["expired"])
