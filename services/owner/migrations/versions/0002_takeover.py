"""Takeover: until when a replaced holder may believe in its grant."""

from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute(
        """
        -- live ── acquire naming its token ──► live (token + 1), of another holder
        --
        -- The latest end of the grants that takeovers replaced: their holders may act until then, and
        -- nothing else tells when. It outlives a taker that dies before it has dealt with that.
        ALTER TABLE owner.leases ADD COLUMN replaced_expires_at timestamptz
        """
    )
