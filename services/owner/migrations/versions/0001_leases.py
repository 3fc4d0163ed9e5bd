"""Leases, the request ids that got them, and the keys that sign grants."""

from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute(
        """
        -- One row per resource ever leased. It is never deleted, so that its token never starts again (F1).
        --
        --   no row ── acquire ──► live (token 1) ── renew ──► live, same token, later end
        --   live ── release ──► ended, at that moment
        --   live ── its time passes ──► ended
        --   ended ── acquire ──► live (token + 1); an ended lease is never renewed
        --
        -- live: expires_at > clock_timestamp(), judged only under the row's lock (F2)
        CREATE TABLE owner.leases (
            resource    text COLLATE "C" PRIMARY KEY,
            holder      text        NOT NULL DEFAULT '',
            -- 0 only inside the transaction that makes the row
            token       bigint      NOT NULL DEFAULT 0 CHECK (token >= 0),
            acquired_at timestamptz NOT NULL DEFAULT 'epoch',
            expires_at  timestamptz NOT NULL DEFAULT 'epoch',
            ttl         interval    NOT NULL DEFAULT '0',
            endpoint    text        NOT NULL DEFAULT '',
            labels      jsonb       NOT NULL DEFAULT '{}',
            -- of the AcquireLease that got the token; empty without one
            request_id  text        NOT NULL DEFAULT ''
        )
        -- room for renewals to stay on their page
        WITH (fillfactor = 70)
        """
    )
    op.execute(
        """
        -- Request ids of AcquireLease calls that got a lease (S2). Kept for a day after the call and after
        -- the end of its lease, so that a repeated call never gets a second one.
        CREATE TABLE owner.requests (
            holder      text        NOT NULL,
            request_id  text        NOT NULL,
            resource    text        COLLATE "C" NOT NULL,
            fingerprint bytea       NOT NULL,
            created_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
            PRIMARY KEY (holder, request_id)
        )
        """
    )
    op.execute("CREATE INDEX requests_by_age ON owner.requests (created_at)")
    op.execute(
        """
        -- All keys here verify; the newest signs. A key is deleted when it was replaced for longer than the
        -- longest lease. Whoever can read this table can make grants: it is owner's alone.
        CREATE TABLE owner.grant_keys (
            kid         text        PRIMARY KEY,
            private_key bytea       NOT NULL CHECK (octet_length(private_key) = 32),
            created_at  timestamptz NOT NULL DEFAULT clock_timestamp()
        )
        """
    )
