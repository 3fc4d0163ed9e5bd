"""Deleting: sessions of which nothing is left but a tombstone, their row."""

from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None

STATEMENTS = (
    """
    ALTER TABLE session.sessions
        DROP CONSTRAINT sessions_state_check,
        DROP CONSTRAINT sessions_operation_check,
        DROP CONSTRAINT sessions_closing,
        ADD CONSTRAINT sessions_state_check CHECK (state IN ('OPEN', 'CLOSING', 'CLOSED', 'DELETED')),
        ADD CONSTRAINT sessions_operation_check CHECK (operation IN ('CLOSE', 'DELETE')),
        ADD CONSTRAINT sessions_closing CHECK
            (CASE WHEN operation = 'CLOSE' THEN state = 'CLOSING'
                  WHEN operation = 'DELETE' THEN state <> 'OPEN'
                  ELSE state <> 'CLOSING' END)
    """,
    """
    COMMENT ON TABLE session.sessions IS
        'One durable conversation each. OPEN -> CLOSING -> CLOSED -> DELETED, also from CLOSING; '
        'only an OPEN one admits and begins turns. A DELETED one is a tombstone: it keeps the id '
        'and the highest token for ever, and nobody reads it but who would take its id. Whoever '
        'changes a turn or a record of a session locks its row first (FOR NO KEY UPDATE).'
    """,
    """
    COMMENT ON COLUMN session.sessions.head_seq IS
        'The seq of the last record; grows by one with each record, in the same transaction. '
        'DELETED: how many are left to be removed'
    """,
    """
    DROP INDEX session.sessions_newest
    """,
    """
    CREATE INDEX sessions_newest ON session.sessions (project, create_time DESC, session_id DESC)
        WHERE state <> 'DELETED'
    """,
    """
    DROP INDEX session.records_turn_seq
    """,
    """
    CREATE UNIQUE INDEX records_turn_seq ON session.records (project, session_id, turn_id, turn_seq)
    """,
    """
    COMMENT ON INDEX session.records_turn_seq IS
        'Of all records, so that the removal of a turn finds at once that it has none left'
    """,
)


def upgrade() -> None:
    """Let sessions be deleted."""
    for statement in STATEMENTS:
        op.execute(statement)


def downgrade() -> None:
    """Forget tombstones with what was not removed yet; what is being deleted is closed, or closing."""
    for statement in (
        """
        DELETE FROM session.records USING session.sessions AS gone
        WHERE gone.state = 'DELETED' AND records.project = gone.project
          AND records.session_id = gone.session_id
        """,
        """
        DELETE FROM session.standing_answers USING session.sessions AS gone
        WHERE gone.state = 'DELETED' AND standing_answers.project = gone.project
          AND standing_answers.session_id = gone.session_id
        """,
        """
        DELETE FROM session.interactions USING session.sessions AS gone
        WHERE gone.state = 'DELETED' AND interactions.project = gone.project
          AND interactions.session_id = gone.session_id
        """,
        """
        DELETE FROM session.commands USING session.sessions AS gone
        WHERE gone.state = 'DELETED' AND commands.project = gone.project
          AND commands.session_id = gone.session_id
        """,
        """
        DELETE FROM session.turns USING session.sessions AS gone
        WHERE gone.state = 'DELETED' AND turns.project = gone.project
          AND turns.session_id = gone.session_id
        """,
        """
        DELETE FROM session.sessions WHERE state = 'DELETED'
        """,
        """
        UPDATE session.sessions SET operation = NULL, operation_deadline = NULL
        WHERE operation = 'DELETE' AND state = 'CLOSED'
        """,
        """
        ALTER TABLE session.sessions
            DROP CONSTRAINT sessions_state_check,
            DROP CONSTRAINT sessions_operation_check,
            DROP CONSTRAINT sessions_closing
        """,
        """
        UPDATE session.sessions SET operation = 'CLOSE' WHERE operation = 'DELETE'
        """,
        """
        ALTER TABLE session.sessions
            ADD CONSTRAINT sessions_state_check CHECK (state IN ('OPEN', 'CLOSING', 'CLOSED')),
            ADD CONSTRAINT sessions_operation_check CHECK (operation IN ('CLOSE')),
            ADD CONSTRAINT sessions_closing CHECK
                ((state = 'CLOSING') = (operation IS NOT DISTINCT FROM 'CLOSE'))
        """,
        """
        COMMENT ON TABLE session.sessions IS
            'One durable conversation each. OPEN -> CLOSING -> CLOSED; only an OPEN one admits and '
            'begins turns. Whoever changes a turn or a record of a session locks its row first (FOR '
            'NO KEY UPDATE).'
        """,
        """
        COMMENT ON COLUMN session.sessions.head_seq IS
            'The seq of the last record; grows by one with each record, in the same transaction'
        """,
        """
        DROP INDEX session.sessions_newest
        """,
        """
        CREATE INDEX sessions_newest ON session.sessions (project, create_time DESC, session_id DESC)
        """,
        """
        DROP INDEX session.records_turn_seq
        """,
        """
        CREATE UNIQUE INDEX records_turn_seq ON session.records (project, session_id, turn_id, turn_seq)
            WHERE turn_seq IS NOT NULL
        """,
    ):
        op.execute(statement)
