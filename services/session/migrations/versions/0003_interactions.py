"""Interactions: questions of agents to users, and turns that wait for an answer."""

from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

STATEMENTS = (
    """
    CREATE TABLE session.interactions (
        project            text        NOT NULL,
        session_id         text        NOT NULL,
        interaction_id     text        NOT NULL,
        turn_id            text        NOT NULL,
        turn_seq           bigint      NOT NULL,
        seq                bigint      NOT NULL,
        kind               text        NOT NULL CHECK (kind IN ('PERMISSION', 'CHOICE')),
        question           bytea       NOT NULL,
        state              text        NOT NULL DEFAULT 'PENDING' CHECK (state IN
                               ('PENDING', 'ANSWERED', 'CANCELLED', 'EXPIRED')),
        option_id          text        NOT NULL DEFAULT '',
        settled_by         text        NOT NULL DEFAULT '',
        create_time        timestamptz NOT NULL DEFAULT clock_timestamp(),
        expire_time        timestamptz NOT NULL,
        settle_time        timestamptz,
        delivery_time      timestamptz,
        delivery_attempts  integer     NOT NULL DEFAULT 0,
        PRIMARY KEY (project, session_id, interaction_id),
        UNIQUE (project, session_id, seq),
        FOREIGN KEY (project, session_id, turn_id) REFERENCES session.turns,
        CONSTRAINT interactions_settled CHECK ((state = 'PENDING') = (settle_time IS NULL)),
        CONSTRAINT interactions_answered CHECK ((state = 'ANSWERED') = (option_id <> '')),
        CONSTRAINT interactions_delivered CHECK
            (delivery_time IS NULL OR state IN ('ANSWERED', 'EXPIRED'))
    )
    """,
    """
    COMMENT ON TABLE session.interactions IS
        'PENDING -> ANSWERED | CANCELLED | EXPIRED, under the session''s row and with a record '
        'in the same transaction: the first decision wins. A settled one changes no more, but '
        'for its delivery.'
    """,
    """
    COMMENT ON COLUMN session.interactions.seq IS 'The seq of the record that opened it'
    """,
    """
    COMMENT ON COLUMN session.interactions.question IS
        'moorage.common.v1.InteractionOpened, serialised'
    """,
    """
    COMMENT ON COLUMN session.interactions.delivery_time IS
        'ANSWERED and EXPIRED: when the outbox tells the runner (again); NULL once it has it, or '
        'once the turn is stopped or has ended'
    """,
    """
    CREATE INDEX interactions_of_turns ON session.interactions (project, session_id, turn_id)
    """,
    """
    CREATE INDEX interactions_to_expire ON session.interactions (expire_time)
        WHERE state = 'PENDING'
    """,
    """
    CREATE INDEX interactions_to_deliver ON session.interactions (delivery_time)
        WHERE delivery_time IS NOT NULL
    """,
    """
    ALTER TABLE session.turns
        DROP CONSTRAINT turns_state_check,
        DROP CONSTRAINT turns_begun,
        DROP CONSTRAINT turns_ended,
        ADD COLUMN pending_interaction_ids text[] NOT NULL DEFAULT '{}',
        ADD CONSTRAINT turns_state_check CHECK (state IN
            ('ADMITTED', 'RUNNING', 'AWAITING_INPUT', 'COMPLETED', 'STOPPED', 'FAILED', 'LOST')),
        ADD CONSTRAINT turns_begun CHECK
            (state NOT IN ('RUNNING', 'AWAITING_INPUT') OR (token IS NOT NULL AND attempt_id IS NOT NULL)),
        ADD CONSTRAINT turns_ended CHECK
            ((state IN ('ADMITTED', 'RUNNING', 'AWAITING_INPUT')) = (end_time IS NULL AND end_reason IS NULL)),
        ADD CONSTRAINT turns_awaiting CHECK
            ((state = 'AWAITING_INPUT') = (cardinality(pending_interaction_ids) > 0))
    """,
    """
    COMMENT ON COLUMN session.turns.pending_interaction_ids IS
        'Its PENDING interactions, oldest first'
    """,
    """
    COMMENT ON TABLE session.turns IS
        'ADMITTED -> RUNNING <-> AWAITING_INPUT -> COMPLETED | STOPPED | FAILED | LOST; ADMITTED '
        'also ends at once. ADMITTED is the session service''s alone; a begun turn (RUNNING, '
        'AWAITING_INPUT) is ended only by a write that shows a token, under the session''s row. '
        'An ended turn never changes.'
    """,
    """
    DROP INDEX session.turns_one_in_progress
    """,
    """
    CREATE UNIQUE INDEX turns_one_in_progress ON session.turns (project, session_id)
        WHERE state IN ('ADMITTED', 'RUNNING', 'AWAITING_INPUT')
    """,
    """
    COMMENT ON INDEX session.turns_one_in_progress IS 'A session has at most one turn in progress'
    """,
    """
    DROP INDEX session.turns_begun_now
    """,
    """
    CREATE INDEX turns_begun_now ON session.turns (project, session_id)
        WHERE state IN ('RUNNING', 'AWAITING_INPUT')
    """,
)


def upgrade() -> None:
    """Create the interactions, and let turns wait for an answer."""
    for statement in STATEMENTS:
        op.execute(statement)


def downgrade() -> None:
    """Forget the interactions; a turn that waits for an answer goes on as a running one."""
    op.execute("DROP INDEX session.turns_one_in_progress")
    op.execute("DROP INDEX session.turns_begun_now")
    op.execute(
        """
        ALTER TABLE session.turns
            DROP CONSTRAINT turns_state_check,
            DROP CONSTRAINT turns_begun,
            DROP CONSTRAINT turns_ended,
            DROP COLUMN pending_interaction_ids
        """
    )
    op.execute("UPDATE session.turns SET state = 'RUNNING' WHERE state = 'AWAITING_INPUT'")
    op.execute(
        """
        ALTER TABLE session.turns
            ADD CONSTRAINT turns_state_check CHECK (state IN
                ('ADMITTED', 'RUNNING', 'COMPLETED', 'STOPPED', 'FAILED', 'LOST')),
            ADD CONSTRAINT turns_begun CHECK
                (state <> 'RUNNING' OR (token IS NOT NULL AND attempt_id IS NOT NULL)),
            ADD CONSTRAINT turns_ended CHECK
                ((state IN ('ADMITTED', 'RUNNING')) = (end_time IS NULL AND end_reason IS NULL))
        """
    )
    op.execute(
        """
        CREATE UNIQUE INDEX turns_one_in_progress ON session.turns (project, session_id)
            WHERE state IN ('ADMITTED', 'RUNNING')
        """
    )
    op.execute("CREATE INDEX turns_begun_now ON session.turns (project, session_id) WHERE state = 'RUNNING'")
    op.execute("DROP TABLE session.interactions")
