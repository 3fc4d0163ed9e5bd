"""The steps of acquiring a lease, in the order in which one transaction takes them (F2, S2)."""

from __future__ import annotations

import json

import asyncpg

from services.common.database import Connection
from services.owner.leases import (
    Acquisition,
    Lease,
    LeaseEnded,
    LeaseHeld,
    RequestIdReused,
    TakeoverStale,
)
from services.owner.store.rows import lease_of


async def lock(connection: Connection, acquisition: Acquisition) -> bool:
    """Store the request id and hold the resource's row; whether the id had been stored before.

    Waits for a call with the same id, then for the row, which is made if it does not exist.
    """
    row = await _lock_what_exists(connection, acquisition)
    if row["fingerprint"] not in (None, acquisition.fingerprint):
        raise RequestIdReused(holder=acquisition.holder, request_id=acquisition.request_id)
    if not row["is_locked"]:
        await _lock_new(connection, acquisition.resource)
    return bool(row["is_repeated"])


async def _lock_what_exists(connection: Connection, acquisition: Acquisition) -> asyncpg.Record:
    """One statement, and so one round trip, for three steps that depend on each other."""
    [row] = await connection.fetch(
        """
        WITH durable AS MATERIALIZED (
            -- see commit_durably
            SELECT set_config('synchronous_commit', 'on', true)
            WHERE current_setting('synchronous_commit') IN ('off', 'local', 'remote_write')
        ),
        remembered AS (
            INSERT INTO owner.requests AS request (holder, request_id, resource, fingerprint)
            SELECT $1, $2, $3, $4::bytea WHERE $2 <> ''
            -- changes nothing, but locks and returns the stored row
            ON CONFLICT (holder, request_id) DO UPDATE SET holder = request.holder
            -- xmax is 0 in a row that was just inserted, and names us in one that was just updated
            RETURNING request.xmax <> 0 AS is_repeated, request.fingerprint
        ),
        locked AS (
            -- counting is what puts the request id's lock before this one
            SELECT FROM owner.leases WHERE resource = $3 AND (SELECT count(*) FROM remembered) >= 0 FOR UPDATE
        )
        SELECT EXISTS (SELECT FROM locked) AS is_locked, remembered.is_repeated, remembered.fingerprint
        FROM (SELECT count(*) FROM durable) AS durably LEFT JOIN remembered ON true
        """,
        acquisition.holder,
        acquisition.request_id,
        acquisition.resource,
        acquisition.fingerprint,
    )
    return row


async def _lock_new(connection: Connection, resource: str) -> None:
    await connection.execute(
        "INSERT INTO owner.leases (resource) VALUES ($1) ON CONFLICT (resource) DO NOTHING", resource
    )
    await connection.execute("SELECT FROM owner.leases WHERE resource = $1 FOR UPDATE", resource)


async def find_granted(connection: Connection, acquisition: Acquisition) -> Lease:
    """The lease that this request id got, or LeaseEnded."""
    row = await connection.fetchrow(
        """
        SELECT *, expires_at > clock_timestamp() AS live FROM owner.leases
        WHERE resource = $1 AND holder = $2 AND request_id = $3
        """,
        acquisition.resource,
        acquisition.holder,
        acquisition.request_id,
    )
    if row is None or not row["live"]:
        raise LeaseEnded(resource=acquisition.resource, request_id=acquisition.request_id)
    return lease_of(row)


async def grant(connection: Connection, acquisition: Acquisition) -> Lease:
    """The lease with the next token, or LeaseHeld; a takeover: or TakeoverStale."""
    row = await connection.fetchrow(
        """
        WITH moment AS MATERIALIZED (SELECT clock_timestamp() AS at)
        UPDATE owner.leases
        SET holder = $2, token = token + 1, acquired_at = moment.at, expires_at = moment.at + $3::interval,
            ttl = $3, endpoint = $4, labels = $5, request_id = $6,
            replaced_expires_at = CASE
                -- also of the one whose taker is itself replaced
                WHEN $7::bigint > 0 THEN greatest(expires_at, replaced_expires_at)
                WHEN replaced_expires_at > moment.at THEN replaced_expires_at
            END
        FROM moment
        WHERE resource = $1 AND CASE WHEN $7::bigint > 0 THEN token = $7 ELSE expires_at <= moment.at END
        RETURNING leases.*, true AS live
        """,
        acquisition.resource,
        acquisition.holder,
        acquisition.ttl,
        acquisition.endpoint,
        json.dumps(acquisition.labels),
        acquisition.request_id,
        acquisition.takeover_token,
    )
    if row is None and acquisition.takeover_token:
        raise TakeoverStale(resource=acquisition.resource, token=acquisition.takeover_token)
    if row is None:
        raise await _held(connection, acquisition.resource)
    return lease_of(row)


async def _held(connection: Connection, resource: str) -> LeaseHeld:
    [row] = await connection.fetch(
        """
        SELECT holder, expires_at,
               greatest(0, extract(epoch FROM expires_at - clock_timestamp()))::float8 AS remaining
        FROM owner.leases WHERE resource = $1
        """,
        resource,
    )
    return LeaseHeld(
        resource=resource,
        holder=row["holder"],
        expire_time=row["expires_at"],
        retry_after=row["remaining"],
    )
