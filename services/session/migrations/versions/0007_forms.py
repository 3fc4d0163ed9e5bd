"""Questions that want values, and answers that go for later questions as well (T6)."""

from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None

STATEMENTS = (
    """
    ALTER TABLE session.interactions
        DROP CONSTRAINT interactions_kind_check,
        ADD CONSTRAINT interactions_kind_check CHECK (kind IN ('PERMISSION', 'CHOICE', 'FORM')),
        ADD COLUMN answer_values text NOT NULL DEFAULT '',
        ADD CONSTRAINT interactions_values CHECK (answer_values = '' OR (kind = 'FORM' AND state = 'ANSWERED'))
    """,
    """
    COMMENT ON COLUMN session.interactions.answer_values IS
        'FORM, ANSWERED: what was filled in, a JSON object; empty where it was declined'
    """,
    """
    CREATE TABLE session.standing_answers (
        project             text        NOT NULL,
        session_id          text        NOT NULL,
        standing_answer_id  text        NOT NULL,
        tool_kind           text        NOT NULL,
        title               text        NOT NULL,
        allow               boolean     NOT NULL,
        interaction_id      text        NOT NULL,
        seq                 bigint      NOT NULL,
        create_time         timestamptz NOT NULL DEFAULT clock_timestamp(),
        revoke_time         timestamptz,
        PRIMARY KEY (project, session_id, standing_answer_id),
        FOREIGN KEY (project, session_id, interaction_id) REFERENCES session.interactions
    )
    """,
    """
    COMMENT ON TABLE session.standing_answers IS
        'What a user answered once for all questions about the same: made with the answer, in '
        'force until revoke_time. Changed under the session''s row only, so that a question that '
        'is stored meets it whole or not at all.'
    """,
    """
    COMMENT ON COLUMN session.standing_answers.title IS
        'The title of the questions that it answers; empty: all about this kind of tool'
    """,
    """
    COMMENT ON COLUMN session.standing_answers.seq IS 'The seq of the record of the question'
    """,
    """
    CREATE UNIQUE INDEX standing_answers_in_force
        ON session.standing_answers (project, session_id, tool_kind, md5(title))
        WHERE revoke_time IS NULL
    """,
    """
    COMMENT ON INDEX session.standing_answers_in_force IS
        'A question has one standing answer at most'
    """,
)


def upgrade() -> None:
    """Let forms be asked, and answers stand."""
    for statement in STATEMENTS:
        op.execute(statement)


def downgrade() -> None:
    """Forget standing answers and forms; a turn that waits for one goes on as a running one."""
    op.execute("DROP TABLE session.standing_answers")
    op.execute(
        """
        UPDATE session.turns AS turn SET
            pending_interaction_ids = left_over.names,
            state = CASE WHEN cardinality(left_over.names) > 0 THEN 'AWAITING_INPUT' ELSE 'RUNNING' END
        FROM (
            SELECT project, session_id, turn_id, array(
                SELECT name FROM unnest(pending_interaction_ids) WITH ORDINALITY AS pending (name, place)
                WHERE NOT EXISTS (
                    SELECT FROM session.interactions AS form
                    WHERE form.project = waiting.project AND form.session_id = waiting.session_id
                      AND form.interaction_id = pending.name AND form.kind = 'FORM'
                )
                ORDER BY place
            ) AS names
            FROM session.turns AS waiting WHERE state = 'AWAITING_INPUT'
        ) AS left_over
        WHERE turn.project = left_over.project AND turn.session_id = left_over.session_id
          AND turn.turn_id = left_over.turn_id
        """
    )
    op.execute("DELETE FROM session.interactions WHERE kind = 'FORM'")
    op.execute(
        """
        ALTER TABLE session.interactions
            DROP COLUMN answer_values,
            DROP CONSTRAINT interactions_kind_check,
            ADD CONSTRAINT interactions_kind_check CHECK (kind IN ('PERMISSION', 'CHOICE'))
        """
    )
