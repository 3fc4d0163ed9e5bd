"""The sessions table."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Final

import asyncpg

from services.common.database import Connection, Database
from services.common.errors import AlreadyExists
from services.common.failpoints import failpoint
from services.session.requests import RequestKey
from services.session.sessions import (
    ApprovalPolicy,
    CreationOverdue,
    EtagMismatch,
    NewSession,
    OperationKind,
    RetentionPolicy,
    Session,
    SessionAlreadyExists,
    SessionChange,
    SessionDeleted,
    SessionNotFound,
    SessionOperation,
    SessionState,
    check_open,
)
from services.session.store.requests import claim_request, find_request
from services.session.store.rows import snapshot, values_of

# The state of a tombstone, which nobody reads but who would take its id.
_DELETED: Final = "DELETED"


class SessionStore:
    """Sessions; each method is one statement or one transaction."""

    def __init__(self, database: Database) -> None:
        """The service's database."""
        self._database = database

    async def find_repeated(self, key: RequestKey, session_id: str) -> Session | None:
        """The session that an earlier call with this key made.

        Raises SessionAlreadyExists or SessionDeleted when there was none and the id is taken, RequestIdReused.
        """
        async with snapshot(self._database) as connection:
            if (names := await find_request(connection, key)) is not None:
                return await read_session(connection, key.project, names["session_id"])
            state = await _state_of(connection, key.project, session_id)
        if state is not None:
            raise _taken(key.project, session_id, state)
        return None

    async def create(self, draft: NewSession, key: RequestKey, *, by: datetime) -> Session:
        """Store a session, or return the one that another call with this key has stored.

        After `by` none is stored: the workspace service may take its workspace for nobody's then.
        Raises SessionAlreadyExists, SessionDeleted, RequestIdReused, CreationOverdue.
        """
        async with self._database.transaction() as connection:
            names = await claim_request(connection, key, {"session_id": draft.session_id})
            if names is not None:
                return await read_session(connection, key.project, names["session_id"])
            await _lock_draft(connection, draft)
            if await connection.fetchval("SELECT clock_timestamp() > $1", by):
                raise CreationOverdue(session_id=draft.session_id)
            row = await connection.fetchrow(
                """
                INSERT INTO session.sessions (project, session_id, labels, agent, profile,
                    approval_policy, limits, binding_kind, binding, workspace_id, retention,
                    retention_ttl)
                VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)
                ON CONFLICT DO NOTHING
                RETURNING *
                """,
                draft.project,
                draft.session_id,
                json.dumps(dict(draft.labels)),
                draft.agent,
                draft.profile,
                draft.approval_policy,
                draft.limits,
                draft.binding_kind,
                draft.binding,
                draft.workspace_id,
                draft.retention,
                draft.retention_ttl,
            )
            if row is None:
                state = await _state_of(connection, draft.project, draft.session_id)
                raise _taken(draft.project, draft.session_id, state)
            await failpoint("session.create_session.before_commit")
        return session_of(row)

    async def find_stored(self, draft: NewSession) -> Session | None:
        """What became of a `create` whose outcome is not known: the stored session or None.

        Waits until a transaction that may still be committing has ended, so None is final.
        """
        async with self._database.transaction() as connection:
            await _lock_draft(connection, draft)
            row = await connection.fetchrow(
                """
                SELECT * FROM session.sessions
                WHERE project = $1 AND session_id = $2 AND workspace_id = $3
                """,
                draft.project,
                draft.session_id,
                draft.workspace_id,
            )
        return session_of(row) if row else None

    async def update(self, change: SessionChange, key: RequestKey) -> None:
        """Change what is not None, if the session is open and the etag fits.

        Raises SessionNotFound, SessionClosed, EtagMismatch, RequestIdReused.
        """
        async with self._database.transaction() as connection:
            if await claim_request(connection, key, {"session_id": change.session_id}) is None:
                await _update(connection, change)


async def lock_session(connection: Connection, project: str, session_id: str) -> Session:
    """Lock a session's row until the transaction ends: before any change of its turns or records.

    Raises SessionNotFound.
    """
    row = await connection.fetchrow(
        """
        SELECT * FROM session.sessions
        WHERE project = $1 AND session_id = $2 AND state <> 'DELETED'
        FOR NO KEY UPDATE
        """,
        project,
        session_id,
    )
    return _require(row, project, session_id)


async def read_session(connection: Connection, project: str, session_id: str) -> Session:
    """A session as it stands. Raises SessionNotFound."""
    row = await connection.fetchrow(
        "SELECT * FROM session.sessions WHERE project = $1 AND session_id = $2 AND state <> 'DELETED'",
        project,
        session_id,
    )
    return _require(row, project, session_id)


def session_of(row: asyncpg.Record) -> Session:
    """A whole row of session.sessions."""
    values = {**values_of(row, Session), "operation": _operation_of(row)}
    values["labels"] = json.loads(row["labels"])
    values["state"] = SessionState(row["state"])
    values["approval_policy"] = ApprovalPolicy(row["approval_policy"])
    values["retention"] = RetentionPolicy(row["retention"])
    return Session(**values)


def _operation_of(row: asyncpg.Record) -> SessionOperation | None:
    kind = row["operation"]
    if kind is None:
        return None
    return SessionOperation(OperationKind(kind), row["operation_deadline"], row["operation_waiting_reason"])


async def _state_of(connection: Connection, project: str, session_id: str) -> str | None:
    """Of a session, or of the tombstone that is left of one."""
    state: str | None = await connection.fetchval(
        "SELECT state FROM session.sessions WHERE project = $1 AND session_id = $2", project, session_id
    )
    return state


def _taken(project: str, session_id: str, state: str | None) -> AlreadyExists:
    """Why no session gets this id: one has it, or had it."""
    kind = SessionDeleted if state == _DELETED else SessionAlreadyExists
    return kind(project=project, session_id=session_id)


async def _update(connection: Connection, change: SessionChange) -> None:
    changed = await connection.fetchval(
        """
        UPDATE session.sessions SET
            labels = coalesce($3::jsonb, labels),
            approval_policy = coalesce($4::text, approval_policy),
            limits = coalesce($5::bytea, limits),
            version = version + 1,
            update_time = clock_timestamp()
        WHERE project = $1 AND session_id = $2 AND state = 'OPEN'
          AND ($6::text = '' OR $6::text = 'v' || version)
        RETURNING true
        """,
        change.project,
        change.session_id,
        None if change.labels is None else json.dumps(dict(change.labels)),
        change.approval_policy,
        change.limits,
        change.etag,
    )
    if not changed:
        stored = await read_session(connection, change.project, change.session_id)
        check_open(stored)
        raise EtagMismatch(session_id=stored.session_id, stored=stored.etag, given=change.etag)


async def _lock_draft(connection: Connection, draft: NewSession) -> None:
    """Let only one transaction at a time be about this attempt to create a session."""
    await connection.execute("SELECT pg_advisory_xact_lock(hashtextextended($1, 0))", draft.workspace_id)


def _require(row: asyncpg.Record | None, project: str, session_id: str) -> Session:
    if row is None:
        raise SessionNotFound(project=project, session_id=session_id)
    return session_of(row)
