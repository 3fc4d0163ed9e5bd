"""What the collector goes by: who has claimed a workspace, when it was used, and how long it may be kept."""

from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute(
        """
        ALTER TABLE workspace.workspaces
            -- when it became known that its session is stored; null: perhaps it never was
            ADD COLUMN claimed_at timestamptz,
            -- when it was last claimed, written to or executed in, to the minute or to a quarter of idle_ttl
            ADD COLUMN used_at    timestamptz,
            -- it goes so long after it was made, and when it was not used for so long; null: never
            ADD COLUMN ttl        interval CHECK (ttl > interval '0'),
            ADD COLUMN idle_ttl   interval CHECK (idle_ttl > interval '0'),
            -- it goes then, as somebody asked to delete it after a while; null: nobody did
            ADD COLUMN delete_at  timestamptz
        """
    )
    op.execute(
        """
        -- A token was shown by who holds the lease of a session that is stored.
        UPDATE workspace.workspaces SET claimed_at = created_at WHERE token > 0
        """
    )
    op.execute(
        """
        CREATE INDEX workspaces_to_collect ON workspace.workspaces (instance_id, created_at)
        WHERE state NOT IN ('DELETING', 'DELETED')
          AND (claimed_at IS NULL OR ttl IS NOT NULL OR idle_ttl IS NOT NULL OR delete_at IS NOT NULL)
        """
    )
