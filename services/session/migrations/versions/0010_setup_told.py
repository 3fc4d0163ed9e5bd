"""Whether the transcript tells already how the set-up command of the workspace ended."""

from alembic import op

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Find the record without reading the transcript."""
    op.execute(
        """
        CREATE INDEX records_workspace_prepared ON session.records (project, session_id)
        WHERE kind = 'workspace_prepared'
        """
    )


def downgrade() -> None:
    """The records stay."""
    op.execute("DROP INDEX session.records_workspace_prepared")
