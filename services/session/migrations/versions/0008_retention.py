"""Retention: a workspace that outlives its session for a while, and one that nothing removes by itself."""

from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None

STATEMENTS = (
    """
    ALTER TABLE session.sessions
        DROP CONSTRAINT sessions_retention_check,
        ADD CONSTRAINT sessions_retention_check CHECK
            (retention IN ('DELETE_ON_CLOSE', 'MANUAL', 'TTL', 'PINNED')),
        ADD COLUMN retention_ttl interval,
        ADD CONSTRAINT sessions_retention_ttl CHECK ((retention = 'TTL') = (retention_ttl IS NOT NULL))
    """,
    """
    COMMENT ON COLUMN session.sessions.retention_ttl IS
        'TTL: how long the workspace is kept after closing. The workspace service is told when the '
        'session is closed, and keeps the time itself.'
    """,
)


def upgrade() -> None:
    """Let workspaces stay after closing."""
    for statement in STATEMENTS:
        op.execute(statement)


def downgrade() -> None:
    """What is to be removed later is left to people."""
    op.execute(
        """
        ALTER TABLE session.sessions
            DROP CONSTRAINT sessions_retention_ttl,
            DROP COLUMN retention_ttl
        """
    )
    op.execute("UPDATE session.sessions SET retention = 'MANUAL' WHERE retention IN ('TTL', 'PINNED')")
    op.execute(
        """
        ALTER TABLE session.sessions
            DROP CONSTRAINT sessions_retention_check,
            ADD CONSTRAINT sessions_retention_check CHECK (retention IN ('DELETE_ON_CLOSE', 'MANUAL'))
        """
    )
