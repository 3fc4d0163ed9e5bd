"""Closing: sessions that take no more turns, and the operation that holds a session."""

from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

STATEMENTS = (
    """
    ALTER TABLE session.sessions
        DROP CONSTRAINT sessions_state_check,
        ADD CONSTRAINT sessions_state_check CHECK (state IN ('OPEN', 'CLOSING', 'CLOSED')),
        ADD COLUMN retention text NOT NULL DEFAULT 'MANUAL'
            CHECK (retention IN ('DELETE_ON_CLOSE', 'MANUAL')),
        ADD COLUMN operation text CHECK (operation IN ('CLOSE')),
        ADD COLUMN operation_deadline timestamptz,
        ADD COLUMN operation_waiting_reason text NOT NULL DEFAULT '',
        ADD COLUMN operation_attempts integer NOT NULL DEFAULT 0,
        ADD COLUMN operation_traceparent text NOT NULL DEFAULT '',
        ADD CONSTRAINT sessions_operation CHECK ((operation IS NULL) = (operation_deadline IS NULL)),
        ADD CONSTRAINT sessions_closing CHECK
            ((state = 'CLOSING') = (operation IS NOT DISTINCT FROM 'CLOSE'))
    """,
    """
    ALTER TABLE session.sessions ALTER COLUMN retention DROP DEFAULT
    """,
    """
    COMMENT ON TABLE session.sessions IS
        'One durable conversation each. OPEN -> CLOSING -> CLOSED; only an OPEN one admits and '
        'begins turns. Whoever changes a turn or a record of a session locks its row first (FOR '
        'NO KEY UPDATE).'
    """,
    """
    COMMENT ON COLUMN session.sessions.retention IS
        'What becomes of its workspace when it is closed; what was supplied is never removed'
    """,
    """
    COMMENT ON COLUMN session.sessions.operation IS
        'The one operation that holds the session; set together with its state by one guarded '
        'statement, cleared together with it at the end'
    """,
    """
    COMMENT ON COLUMN session.sessions.operation_deadline IS
        'When the operation is taken up (again); set before each call to another service, so '
        'that another replica goes on when this one dies'
    """,
    """
    COMMENT ON COLUMN session.sessions.operation_attempts IS
        'How often a replica took it up; guards what that replica stores afterwards'
    """,
    """
    CREATE INDEX sessions_in_operation ON session.sessions (operation_deadline)
        WHERE operation IS NOT NULL
    """,
    """
    ALTER TABLE session.turns
        ADD COLUMN stop_end_reason text CHECK (stop_end_reason IN ('USER_STOP', 'CLOSED'))
    """,
    """
    UPDATE session.turns SET stop_end_reason = 'USER_STOP' WHERE stop_deadline IS NOT NULL
    """,
    """
    ALTER TABLE session.turns
        ADD CONSTRAINT turns_stopped CHECK ((stop_deadline IS NULL) = (stop_end_reason IS NULL))
    """,
    """
    COMMENT ON COLUMN session.turns.stop_end_reason IS
        'Set while a Stop of the turn is open: for which reason it will have ended when its '
        'runner stops it'
    """,
)


def upgrade() -> None:
    """Let sessions be closed."""
    for statement in STATEMENTS:
        op.execute(statement)


def downgrade() -> None:
    """Sessions that are closing or closed are open again."""
    op.execute("ALTER TABLE session.turns DROP COLUMN stop_end_reason")
    op.execute(
        """
        ALTER TABLE session.sessions
            DROP CONSTRAINT sessions_state_check,
            DROP COLUMN retention,
            DROP COLUMN operation,
            DROP COLUMN operation_deadline,
            DROP COLUMN operation_waiting_reason,
            DROP COLUMN operation_attempts,
            DROP COLUMN operation_traceparent
        """
    )
    op.execute("UPDATE session.sessions SET state = 'OPEN'")
    op.execute("ALTER TABLE session.sessions ADD CONSTRAINT sessions_state_check CHECK (state IN ('OPEN'))")
    op.execute(
        """
        COMMENT ON TABLE session.sessions IS
            'One durable conversation each. Whoever changes a turn or a record of a session '
            'locks its row first (FOR NO KEY UPDATE).'
        """
    )
