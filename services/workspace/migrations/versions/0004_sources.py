"""Archives that came with a request, and how set-up commands ended."""

from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute(
        """
        -- Until the workspace is made or given up; a day at most. It may be there before the workspace is.
        CREATE TABLE workspace.uploads (
            project      text        COLLATE "C" NOT NULL,
            workspace_id text        COLLATE "C" NOT NULL,
            sha256       text        COLLATE "C" NOT NULL,
            data         bytea       NOT NULL,
            stored_at    timestamptz NOT NULL DEFAULT clock_timestamp(),
            PRIMARY KEY (project, workspace_id, sha256)
        )
        """
    )
    op.execute("CREATE INDEX uploads_by_age ON workspace.uploads (stored_at)")
    op.execute(
        """
        -- Apart from the workspace, which is read often, as its output may be 64 KiB.
        CREATE TABLE workspace.setups (
            project      text  COLLATE "C" NOT NULL,
            workspace_id text  COLLATE "C" NOT NULL,
            result       jsonb NOT NULL,
            PRIMARY KEY (project, workspace_id),
            FOREIGN KEY (project, workspace_id) REFERENCES workspace.workspaces
        )
        """
    )
