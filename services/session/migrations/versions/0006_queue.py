"""The queue: turns that wait for their session's slot (T2)."""

from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None

STATEMENTS = (
    """
    ALTER TABLE session.turns
        ADD COLUMN admit_time timestamptz,
        ADD COLUMN queue_order bigint,
        ADD COLUMN queue_expire_time timestamptz,
        ADD COLUMN interrupts boolean NOT NULL DEFAULT false
    """,
    """
    UPDATE session.turns SET admit_time = create_time
    """,
    """
    ALTER TABLE session.turns
        DROP CONSTRAINT turns_state_check,
        DROP CONSTRAINT turns_ended,
        ADD CONSTRAINT turns_state_check CHECK (state IN
            ('QUEUED', 'ADMITTED', 'RUNNING', 'AWAITING_INPUT', 'COMPLETED', 'STOPPED', 'FAILED', 'LOST')),
        ADD CONSTRAINT turns_ended CHECK
            ((state IN ('QUEUED', 'ADMITTED', 'RUNNING', 'AWAITING_INPUT'))
             = (end_time IS NULL AND end_reason IS NULL)),
        ADD CONSTRAINT turns_queued CHECK
            (CASE WHEN state = 'QUEUED'
                  THEN queue_order IS NOT NULL AND queue_expire_time IS NOT NULL AND admit_time IS NULL
                  ELSE queue_order IS NULL AND queue_expire_time IS NULL AND NOT interrupts END),
        ADD CONSTRAINT turns_admitted CHECK
            (admit_time IS NOT NULL OR state NOT IN ('ADMITTED', 'RUNNING', 'AWAITING_INPUT'))
    """,
    """
    COMMENT ON TABLE session.turns IS
        'QUEUED -> ADMITTED -> RUNNING <-> AWAITING_INPUT -> COMPLETED | STOPPED | FAILED | LOST; '
        'QUEUED and ADMITTED also end at once, and are the session service''s alone. A begun turn '
        '(RUNNING, AWAITING_INPUT) is ended only by a write that shows a token, under the '
        'session''s row. An ended turn never changes.'
    """,
    """
    COMMENT ON COLUMN session.turns.number IS '1, 2, 3 … in the order of StartTurn'
    """,
    """
    COMMENT ON COLUMN session.turns.admit_time IS
        'When it took the session''s slot; NULL while it is QUEUED, and for ever when it ended so'
    """,
    """
    COMMENT ON COLUMN session.turns.queue_order IS 'QUEUED: the lowest takes the slot next'
    """,
    """
    COMMENT ON COLUMN session.turns.queue_expire_time IS 'QUEUED: from then on it is never admitted'
    """,
    """
    COMMENT ON COLUMN session.turns.interrupts IS
        'QUEUED: any end of the turn before admits it, not only COMPLETED'
    """,
    """
    CREATE UNIQUE INDEX turns_queue ON session.turns (project, session_id, queue_order)
        WHERE state = 'QUEUED'
    """,
    """
    CREATE INDEX turns_to_expire ON session.turns (queue_expire_time) WHERE state = 'QUEUED'
    """,
    """
    CREATE INDEX turns_in_order ON session.turns (project, session_id, first_seq)
        WHERE admit_time IS NOT NULL
    """,
    """
    CREATE INDEX commands_newest ON session.commands (project, session_id, create_time DESC, command_id DESC)
    """,
)


def upgrade() -> None:
    """Let turns wait for their session's slot."""
    for statement in STATEMENTS:
        op.execute(statement)


def downgrade() -> None:
    """Forget the turns that wait, of which nothing was told yet."""
    op.execute("DROP INDEX session.commands_newest")
    op.execute("DELETE FROM session.turns WHERE state = 'QUEUED'")
    op.execute(
        """
        ALTER TABLE session.turns
            DROP CONSTRAINT turns_state_check,
            DROP CONSTRAINT turns_ended,
            DROP COLUMN admit_time,
            DROP COLUMN queue_order,
            DROP COLUMN queue_expire_time,
            DROP COLUMN interrupts,
            ADD CONSTRAINT turns_state_check CHECK (state IN
                ('ADMITTED', 'RUNNING', 'AWAITING_INPUT', 'COMPLETED', 'STOPPED', 'FAILED', 'LOST')),
            ADD CONSTRAINT turns_ended CHECK
                ((state IN ('ADMITTED', 'RUNNING', 'AWAITING_INPUT'))
                 = (end_time IS NULL AND end_reason IS NULL))
        """
    )
