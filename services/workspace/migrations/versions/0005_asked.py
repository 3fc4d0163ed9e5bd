"""When the session service was last asked about a workspace that nobody has claimed."""

from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute(
        """
        ALTER TABLE workspace.workspaces
            -- null: never, or it needed not be asked about
            ADD COLUMN asked_at timestamptz
        """
    )
