"""Commands: durable orders about turns (S1, S3)."""

from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

STATEMENTS = (
    """
    CREATE TABLE session.commands (
        project        text        NOT NULL,
        session_id     text        NOT NULL,
        command_id     text        NOT NULL,
        turn_id        text,
        kind           text        NOT NULL CHECK (kind IN ('STOP')),
        state          text        NOT NULL CHECK (state IN ('PENDING', 'CLAIMED', 'APPLIED', 'OBSOLETE')),
        outcome        text,
        stop_method    text,
        runtime_after  text,
        traceparent    text        NOT NULL DEFAULT '',
        delivery_time  timestamptz NOT NULL DEFAULT clock_timestamp(),
        attempts       integer     NOT NULL DEFAULT 0,
        deliveries     integer     NOT NULL DEFAULT 0,
        deadline       timestamptz,
        create_time    timestamptz NOT NULL DEFAULT clock_timestamp(),
        settle_time    timestamptz,
        PRIMARY KEY (project, session_id, command_id),
        FOREIGN KEY (project, session_id) REFERENCES session.sessions,
        CONSTRAINT commands_settled CHECK
            ((state IN ('PENDING', 'CLAIMED')) = (outcome IS NULL AND settle_time IS NULL)),
        CONSTRAINT commands_outcome CHECK
            ((state = 'APPLIED') = (coalesce(outcome, '') IN ('STOPPED', 'LOST', 'WITHDRAWN'))
             AND (state = 'OBSOLETE') = (coalesce(outcome, '') IN
                 ('NOT_RUNNING', 'FAILED', 'SUPERSEDED_BY_NEWER_TURN'))),
        CONSTRAINT commands_open CHECK
            (settle_time IS NOT NULL OR (turn_id IS NOT NULL AND deadline IS NOT NULL))
    )
    """,
    """
    COMMENT ON TABLE session.commands IS
        'PENDING -> APPLIED | OBSOLETE, shown as CLAIMED from the moment a runner has it; a '
        'command that finds nothing to do is stored settled. Inserted under the session''s row; '
        'an open one is settled only by the ending of its turn, in the same transaction. A '
        'settled command never changes.'
    """,
    """
    CREATE UNIQUE INDEX commands_one_open ON session.commands (project, session_id, turn_id)
        WHERE state IN ('PENDING', 'CLAIMED')
    """,
    """
    COMMENT ON INDEX session.commands_one_open IS 'Two Stops of one turn share one open command'
    """,
    """
    CREATE INDEX commands_to_deliver ON session.commands (delivery_time)
        WHERE state IN ('PENDING', 'CLAIMED')
    """,
    """
    CREATE INDEX commands_withdrawn ON session.commands (project, session_id, turn_id)
        WHERE outcome = 'WITHDRAWN'
    """,
    """
    CREATE INDEX commands_age ON session.commands (settle_time) WHERE settle_time IS NOT NULL
    """,
    """
    COMMENT ON COLUMN session.commands.turn_id IS
        'NULL when there was no turn to stop; a withdrawn one has no row in turns'
    """,
    """
    COMMENT ON COLUMN session.commands.traceparent IS 'Deliveries go on in the trace of the Stop'
    """,
    """
    COMMENT ON COLUMN session.commands.delivery_time IS 'Open: when it is delivered (again)'
    """,
    """
    COMMENT ON COLUMN session.commands.attempts IS
        'How often a replica took it up to deliver it; guards what that replica stores afterwards'
    """,
    """
    COMMENT ON COLUMN session.commands.deliveries IS 'How often it was sent to a runner'
    """,
    """
    ALTER TABLE session.turns
        ADD COLUMN stop_deadline timestamptz,
        ADD CONSTRAINT turns_stopping CHECK (stop_deadline IS NULL OR end_time IS NULL)
    """,
    """
    COMMENT ON COLUMN session.turns.stop_deadline IS
        'Set while a Stop of the turn is open (it is stopping): when that is given up on. '
        'Set once, together with the command; the ending clears it.'
    """,
)


def upgrade() -> None:
    """Create the commands, and let turns be stopping."""
    for statement in STATEMENTS:
        op.execute(statement)


def downgrade() -> None:
    """Forget the commands."""
    op.execute("ALTER TABLE session.turns DROP COLUMN stop_deadline")
    op.execute("DROP TABLE session.commands")
