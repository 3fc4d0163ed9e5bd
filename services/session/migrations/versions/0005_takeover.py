"""Takeover: tokens that begin no more turns of a session, and what is overdue."""

from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None

STATEMENTS = (
    """
    ALTER TABLE session.sessions
        ADD COLUMN begin_above bigint NOT NULL DEFAULT 0,
        ADD COLUMN operation_time timestamptz
    """,
    """
    COMMENT ON COLUMN session.sessions.begin_above IS
        'Only a higher token begins a turn. Raised to the token that is about to be taken over, '
        'before anybody is asked to; it only grows and is never cleared'
    """,
    """
    COMMENT ON COLUMN session.sessions.operation_time IS 'When the operation began'
    """,
    """
    ALTER TABLE session.turns
        DROP CONSTRAINT turns_stop_end_reason_check,
        ADD CONSTRAINT turns_stop_end_reason_check CHECK (stop_end_reason IN
            ('USER_STOP', 'INTERRUPTED', 'CLOSED', 'MAX_DURATION', 'PHASE_DEADLINE')),
        ADD COLUMN duration_deadline timestamptz
    """,
    """
    COMMENT ON COLUMN session.turns.duration_deadline IS
        'When it will have lasted as long as it may; set when it is begun'
    """,
    """
    CREATE INDEX turns_stopping_now ON session.turns (stop_deadline) WHERE stop_deadline IS NOT NULL
    """,
)


def upgrade() -> None:
    """Let sessions be taken over."""
    for statement in STATEMENTS:
        op.execute(statement)


def downgrade() -> None:
    """A token that is about to be taken over may begin turns again."""
    op.execute("DROP INDEX session.turns_stopping_now")
    op.execute(
        """
        UPDATE session.turns SET stop_end_reason = 'USER_STOP'
        WHERE stop_end_reason NOT IN ('USER_STOP', 'CLOSED')
        """
    )
    op.execute(
        """
        ALTER TABLE session.turns
            DROP COLUMN duration_deadline,
            DROP CONSTRAINT turns_stop_end_reason_check,
            ADD CONSTRAINT turns_stop_end_reason_check CHECK (stop_end_reason IN ('USER_STOP', 'CLOSED'))
        """
    )
    op.execute("ALTER TABLE session.sessions DROP COLUMN begin_above, DROP COLUMN operation_time")
