"""Takeover: tokens that begin no more turns of a session."""

from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None

STATEMENTS = (
    """
    ALTER TABLE session.sessions ADD COLUMN begin_above bigint NOT NULL DEFAULT 0
    """,
    """
    COMMENT ON COLUMN session.sessions.begin_above IS
        'Only a higher token begins a turn. Raised to the token that is about to be taken over, '
        'before anybody is asked to; it only grows and is never cleared'
    """,
    """
    CREATE INDEX turns_stopping ON session.turns (stop_deadline) WHERE stop_deadline IS NOT NULL
    """,
)


def upgrade() -> None:
    """Let sessions be taken over."""
    for statement in STATEMENTS:
        op.execute(statement)


def downgrade() -> None:
    """A token that is about to be taken over may begin turns again."""
    op.execute("DROP INDEX session.turns_stopping")
    op.execute("ALTER TABLE session.sessions DROP COLUMN begin_above")
