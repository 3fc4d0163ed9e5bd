"""Workspaces and the instances that carry them."""

from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute(
        """
        -- One row per process place that ever served; tells others where a workspace is carried (W8).
        CREATE TABLE workspace.instances (
            instance_id text        COLLATE "C" PRIMARY KEY,
            endpoint    text        NOT NULL,
            -- of the lease instances/{id} under which it serves: a former holder overwrites nothing
            token       bigint      NOT NULL CHECK (token > 0),
            updated_at  timestamptz NOT NULL DEFAULT clock_timestamp()
        )
        """
    )
    op.execute(
        """
        -- One row per workspace ever asked for, also for a supplied directory: it carries the fence (F4).
        -- It is stored before anything is made (W1) and never deleted, so that no id is used twice.
        --
        --   no row ── asked to make one ──► PROVISIONING ── made ──► READY
        --                                   PROVISIONING ── cannot be made, or too late ──► FAILED
        --   no row ── supplied ──► READY ── its provisioned directory has vanished ──► LOST
        --   PROVISIONING, READY, FAILED, LOST ── asked to delete ──► DELETING ── removed ──► DELETED
        --
        -- Every change names the state it starts from; who finds another one reads the row again.
        CREATE TABLE workspace.workspaces (
            project      text        COLLATE "C" NOT NULL,
            workspace_id text        COLLATE "C" NOT NULL,
            session_id   text        COLLATE "C" NOT NULL,
            source       text        NOT NULL CHECK (source IN ('PROVISION', 'BINDING', 'DEFAULT')),
            provider     text        NOT NULL,
            -- as the caller wrote it; only with a binding
            directory    text        NOT NULL,
            origin       text        NOT NULL CHECK (origin IN ('PROVISIONED', 'SUPPLIED')),
            state        text        NOT NULL CHECK (
                state IN ('PROVISIONING', 'READY', 'DELETING', 'DELETED', 'FAILED', 'LOST')
            ),
            state_reason text        NOT NULL DEFAULT '',
            -- absolute, and free of symbolic links
            root         text        NOT NULL,
            instance_id  text        COLLATE "C" NOT NULL REFERENCES workspace.instances,
            -- the highest fencing token seen; never goes back
            token        bigint      NOT NULL DEFAULT 0 CHECK (token >= 0),
            -- of the work that the state asks for: how often it was begun, and when it is due (again)
            attempts     integer     NOT NULL DEFAULT 0,
            due_at       timestamptz NOT NULL DEFAULT clock_timestamp(),
            -- until when PROVISIONING may last; removal is tried for ever
            deadline     timestamptz,
            created_at   timestamptz NOT NULL DEFAULT clock_timestamp(),
            updated_at   timestamptz NOT NULL DEFAULT clock_timestamp(),
            PRIMARY KEY (project, workspace_id),
            CHECK (origin = 'PROVISIONED' OR state <> 'PROVISIONING'),
            CHECK ((state = 'PROVISIONING') = (deadline IS NOT NULL))
        )
        """
    )
    op.execute(
        """
        CREATE INDEX workspaces_with_work ON workspace.workspaces (instance_id, due_at)
        WHERE state IN ('PROVISIONING', 'DELETING')
        """
    )
    op.execute(
        """
        CREATE INDEX workspaces_not_deleted ON workspace.workspaces (project, workspace_id)
        WHERE state <> 'DELETED'
        """
    )
