"""SQL of turns from their admission to their end, for transactions that hold the session's lock."""

from __future__ import annotations

from datetime import timedelta

from moorage.common.v1.turn_pb2 import RunMetadata

from services.common.database import Connection
from services.session import bindings
from services.session.journal.calls import ProgressCall
from services.session.journal.rules import SessionKey
from services.session.sessions import Session
from services.session.turns import EndReason, Turn


async def overdue_reason(
    connection: Connection, key: SessionKey, turn_id: str, window: timedelta
) -> str | None:
    """The waiting reason of a turn that has been ADMITTED for longer than `window`, None of any other."""
    waiting_reason: str | None = await connection.fetchval(
        """
        SELECT waiting_reason FROM session.turns
        WHERE project = $1 AND session_id = $2 AND turn_id = $3 AND state = 'ADMITTED'
          AND admit_time + $4::interval <= clock_timestamp()
        """,
        *key,
        turn_id,
        window,
    )
    return waiting_reason


async def exceeded_bound(
    connection: Connection, key: SessionKey, turn_id: str, margin: timedelta
) -> EndReason | None:
    """Which bound a begun turn that nobody stops exceeded longer than `margin` ago, None without one."""
    end_reason: str | None = await connection.fetchval(
        """
        SELECT CASE WHEN duration_deadline + $4::interval <= clock_timestamp()
                    THEN 'MAX_DURATION' ELSE 'PHASE_DEADLINE' END
        FROM session.turns
        WHERE project = $1 AND session_id = $2 AND turn_id = $3
          AND state IN ('RUNNING', 'AWAITING_INPUT') AND stop_deadline IS NULL
          AND least(duration_deadline, phase_deadline) + $4::interval <= clock_timestamp()
        """,
        *key,
        turn_id,
        margin,
    )
    return EndReason(end_reason) if end_reason else None


async def store_begin(connection: Connection, turn: Turn, preparing: timedelta) -> None:
    """Begin an admitted turn."""
    await connection.execute(
        """
        UPDATE session.turns SET
            state = 'RUNNING', token = $4, attempt_id = $5, runner_id = $6, metadata = $7,
            phase = 'PREPARING_WORKSPACE', waiting_reason = '',
            phase_deadline = clock_timestamp() + $8::interval, begin_time = clock_timestamp(),
            duration_deadline = clock_timestamp() + $9::interval,
            prompt_sent = $10, native_session_id = $11, observation = $12
        WHERE project = $1 AND session_id = $2 AND turn_id = $3 AND state = 'ADMITTED'
        """,
        turn.project,
        turn.session_id,
        turn.turn_id,
        turn.token,
        turn.attempt_id,
        turn.runner_id,
        turn.metadata,
        preparing,
        RunMetadata.FromString(turn.metadata or b"").limits.max_duration.ToTimedelta(),
        turn.prompt_sent,
        turn.native_session_id,
        turn.observation,
    )


async def native_session_id(connection: Connection, turn: Turn) -> str:
    """The newest native session of the turns before, empty without one."""
    found: str | None = await connection.fetchval(
        """
        SELECT native_session_id FROM session.turns
        WHERE project = $1 AND session_id = $2 AND admit_time IS NOT NULL AND first_seq < $3
          AND native_session_id <> ''
        ORDER BY first_seq DESC
        LIMIT 1
        """,
        turn.project,
        turn.session_id,
        turn.first_seq,
    )
    return found or ""


async def setup_untold(connection: Connection, session: Session) -> bool:
    """Whether no record tells how the set-up command of a workspace that was made has ended."""
    if not bindings.is_provisioned(session.binding_kind, session.binding):
        return False
    untold: bool = await connection.fetchval(
        """
        SELECT NOT EXISTS (
            SELECT FROM session.records
            WHERE project = $1 AND session_id = $2 AND kind = 'workspace_prepared'
        )
        """,
        session.project,
        session.session_id,
    )
    return untold


async def store_phase(connection: Connection, call: ProgressCall) -> None:
    """Store phase, reason and deadline; the same phase again has a new reason and a new deadline."""
    await connection.execute(
        """
        UPDATE session.turns SET
            phase = $4, waiting_reason = $5, phase_deadline = clock_timestamp() + $6::interval
        WHERE project = $1 AND session_id = $2 AND turn_id = $3
        """,
        *call.turn.key,
        call.turn.turn_id,
        call.phase,
        call.waiting_reason,
        call.phase_timeout,
    )


async def store_observation(connection: Connection, turn: Turn) -> None:
    """Store what the runner learnt."""
    await connection.execute(
        """
        UPDATE session.turns SET
            prompt_sent = $4, native_session_id = $5, observation = $6, metadata = $7
        WHERE project = $1 AND session_id = $2 AND turn_id = $3
        """,
        turn.project,
        turn.session_id,
        turn.turn_id,
        turn.prompt_sent,
        turn.native_session_id,
        turn.observation,
        turn.metadata,
    )
