"""What a workspace that is made shall be, and how often it was made anew."""

from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute(
        """
        ALTER TABLE workspace.workspaces
            -- as it was asked for, which a repeated call must repeat, and with the defaults of the
            -- provider filled in as they were then; null: supplied, or older than these columns
            ADD COLUMN asked      jsonb,
            ADD COLUMN spec       jsonb,
            -- what is made carries it; grows when what an earlier one left behind has to be passed by
            ADD COLUMN generation integer NOT NULL DEFAULT 1 CHECK (generation > 0),
            ADD CHECK ((asked IS NULL) = (spec IS NULL)),
            ADD CHECK (spec IS NULL OR source = 'PROVISION')
        """
    )
    op.execute(
        """
        -- What counts against a project's quota: it ends with the wish to delete (W9).
        CREATE INDEX workspaces_counted ON workspace.workspaces (project)
        WHERE origin = 'PROVISIONED' AND state IN ('PROVISIONING', 'READY', 'LOST')
        """
    )
