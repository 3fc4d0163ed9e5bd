"""Sessions, turns, records and request ids."""

from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

STATEMENTS = (
    """
    CREATE TABLE session.sessions (
        project          text        NOT NULL,
        session_id       text        NOT NULL,
        state            text        NOT NULL DEFAULT 'OPEN' CHECK (state IN ('OPEN')),
        labels           jsonb       NOT NULL DEFAULT '{}',
        agent            bytea       NOT NULL,
        profile          text        NOT NULL,
        approval_policy  text        NOT NULL CHECK (approval_policy IN ('ASK', 'ALLOW', 'DENY')),
        limits           bytea       NOT NULL,
        binding_kind     text        NOT NULL,
        binding          bytea       NOT NULL,
        workspace_id     text        NOT NULL,
        version          bigint      NOT NULL DEFAULT 1,
        head_seq         bigint      NOT NULL DEFAULT 0,
        token            bigint      NOT NULL DEFAULT 0,
        create_time      timestamptz NOT NULL DEFAULT clock_timestamp(),
        update_time      timestamptz NOT NULL DEFAULT clock_timestamp(),
        PRIMARY KEY (project, session_id)
    )
    """,
    """
    COMMENT ON TABLE session.sessions IS
        'One durable conversation each. Whoever changes a turn or a record of a session '
        'locks its row first (FOR NO KEY UPDATE).'
    """,
    """
    COMMENT ON COLUMN session.sessions.agent IS 'moorage.session.v1.AgentSpec, serialised'
    """,
    """
    COMMENT ON COLUMN session.sessions.limits IS 'moorage.common.v1.Limits, serialised, as asked for'
    """,
    """
    COMMENT ON COLUMN session.sessions.binding IS
        'moorage.common.v1.Binding, serialised; binding_kind names its kind and is not '
        'constrained, since a row of a kind that this version does not know must be read as such'
    """,
    """
    COMMENT ON COLUMN session.sessions.version IS 'The etag: grows with every UpdateSession'
    """,
    """
    COMMENT ON COLUMN session.sessions.head_seq IS
        'The seq of the last record; grows by one with each record, in the same transaction'
    """,
    """
    COMMENT ON COLUMN session.sessions.token IS
        'The highest fencing token that a holder has shown; only grows'
    """,
    """
    CREATE INDEX sessions_newest ON session.sessions (project, create_time DESC, session_id DESC)
    """,
    """
    CREATE INDEX sessions_labels ON session.sessions USING gin (labels jsonb_path_ops)
    """,
    """
    CREATE TABLE session.turns (
        project            text        NOT NULL,
        session_id         text        NOT NULL,
        turn_id            text        NOT NULL,
        number             bigint      NOT NULL,
        state              text        NOT NULL CHECK (state IN
                               ('ADMITTED', 'RUNNING', 'COMPLETED', 'STOPPED', 'FAILED', 'LOST')),
        end_reason         text,
        phase              text,
        waiting_reason     text        NOT NULL DEFAULT '',
        phase_deadline     timestamptz,
        prompt             bytea       NOT NULL,
        traceparent        text        NOT NULL DEFAULT '',
        dispatch_time      timestamptz NOT NULL DEFAULT clock_timestamp(),
        dispatch_attempts  integer     NOT NULL DEFAULT 0,
        dispatch_endpoint  text        NOT NULL DEFAULT '',
        token              bigint,
        attempt_id         text,
        runner_id          text,
        prompt_sent        boolean     NOT NULL DEFAULT false,
        native_session_id  text        NOT NULL DEFAULT '',
        observation        bytea       NOT NULL DEFAULT '',
        metadata           bytea,
        previous_turn_id   text        NOT NULL DEFAULT '',
        last_turn_seq      bigint      NOT NULL DEFAULT 0,
        first_seq          bigint      NOT NULL DEFAULT 0,
        last_seq           bigint      NOT NULL DEFAULT 0,
        stop_reason        text        NOT NULL DEFAULT '',
        stop_method        text,
        runtime_after      text,
        error              bytea,
        usage              bytea,
        create_time        timestamptz NOT NULL DEFAULT clock_timestamp(),
        begin_time         timestamptz,
        end_time           timestamptz,
        PRIMARY KEY (project, session_id, turn_id),
        UNIQUE (project, session_id, number),
        FOREIGN KEY (project, session_id) REFERENCES session.sessions,
        CONSTRAINT turns_begun CHECK
            (state <> 'RUNNING' OR (token IS NOT NULL AND attempt_id IS NOT NULL)),
        CONSTRAINT turns_ended CHECK
            ((state IN ('ADMITTED', 'RUNNING')) = (end_time IS NULL AND end_reason IS NULL))
    )
    """,
    """
    COMMENT ON TABLE session.turns IS
        'ADMITTED -> RUNNING -> COMPLETED | STOPPED | FAILED | LOST; ADMITTED also ends at once. '
        'ADMITTED is the session service''s alone; RUNNING (begun) is changed and ended only by a '
        'write that shows a token, under the session''s row. An ended turn never changes.'
    """,
    """
    CREATE UNIQUE INDEX turns_one_in_progress ON session.turns (project, session_id)
        WHERE state IN ('ADMITTED', 'RUNNING')
    """,
    """
    COMMENT ON INDEX session.turns_one_in_progress IS 'A session has at most one turn in progress'
    """,
    """
    CREATE INDEX turns_to_dispatch ON session.turns (dispatch_time) WHERE state = 'ADMITTED'
    """,
    """
    CREATE INDEX turns_begun_now ON session.turns (project, session_id) WHERE state = 'RUNNING'
    """,
    """
    COMMENT ON COLUMN session.turns.number IS '1, 2, 3 … in the order of admission'
    """,
    """
    COMMENT ON COLUMN session.turns.dispatch_time IS
        'ADMITTED: when the outbox offers the turn to a runner (again)'
    """,
    """
    COMMENT ON COLUMN session.turns.dispatch_endpoint IS
        'ADMITTED: the runner that it was offered to last; counts towards that runner''s load'
    """,
    """
    COMMENT ON COLUMN session.turns.token IS 'The fencing token that began the turn'
    """,
    """
    COMMENT ON COLUMN session.turns.prompt_sent IS
        'May be true for an unsent prompt, never false for a sent one'
    """,
    """
    COMMENT ON COLUMN session.turns.observation IS 'moorage.session.v1.RunObservation, serialised'
    """,
    """
    COMMENT ON COLUMN session.turns.metadata IS 'moorage.common.v1.RunMetadata, serialised'
    """,
    """
    COMMENT ON COLUMN session.turns.last_turn_seq IS
        'The highest turn_seq stored; the next one must be one more'
    """,
    """
    CREATE TABLE session.records (
        project      text        NOT NULL,
        session_id   text        NOT NULL,
        seq          bigint      NOT NULL,
        turn_id      text        NOT NULL,
        turn_seq     bigint,
        record_id    text,
        kind         text        NOT NULL,
        body         bytea       NOT NULL,
        body_hash    bytea,
        create_time  timestamptz NOT NULL DEFAULT clock_timestamp(),
        PRIMARY KEY (project, session_id, seq),
        FOREIGN KEY (project, session_id, turn_id) REFERENCES session.turns,
        CONSTRAINT records_once CHECK ((turn_seq IS NULL) <> (record_id IS NULL)),
        CONSTRAINT records_hashed CHECK ((turn_seq IS NULL) = (body_hash IS NULL))
    )
    """,
    """
    COMMENT ON TABLE session.records IS
        'The transcript; rows are only added. A record comes either from a runner (turn_seq, '
        'body_hash) or from the session service (record_id, deterministic).'
    """,
    """
    CREATE UNIQUE INDEX records_turn_seq ON session.records (project, session_id, turn_id, turn_seq)
        WHERE turn_seq IS NOT NULL
    """,
    """
    CREATE UNIQUE INDEX records_record_id ON session.records (project, session_id, record_id)
        WHERE record_id IS NOT NULL
    """,
    """
    COMMENT ON COLUMN session.records.body IS 'moorage.common.v1.RecordBody, serialised'
    """,
    """
    COMMENT ON COLUMN session.records.body_hash IS
        'SHA-256 of the body as the runner sent it: tells a repeat from a conflict'
    """,
    """
    CREATE TABLE session.request_ids (
        project      text        NOT NULL,
        scope        text        NOT NULL,
        rpc          text        NOT NULL,
        request_id   text        NOT NULL,
        fingerprint  bytea       NOT NULL,
        names        jsonb       NOT NULL DEFAULT '{}',
        create_time  timestamptz NOT NULL DEFAULT clock_timestamp(),
        PRIMARY KEY (project, scope, rpc, request_id)
    )
    """,
    """
    COMMENT ON TABLE session.request_ids IS
        'Inserted first in the transaction of a mutating call, before any lock or look at '
        'other state; kept 24 h. scope is the session id, empty for CreateSession. A refused '
        'call rolls its row back.'
    """,
    """
    CREATE INDEX request_ids_age ON session.request_ids (create_time)
    """,
)


def upgrade() -> None:
    """Create the tables of this version."""
    op.execute("CREATE SCHEMA IF NOT EXISTS session")
    for statement in STATEMENTS:
        op.execute(statement)


def downgrade() -> None:
    """Drop everything of the session service."""
    op.execute("DROP SCHEMA session CASCADE")
