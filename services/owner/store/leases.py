"""Leases and request ids. Expiry is judged by the database's clock, after the row's lock (F2)."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Final

import asyncpg

from services.common.database import Connection, Database
from services.owner.leases import (
    Acquisition,
    Lease,
    LeaseNotFound,
    Release,
    Renewal,
    RenewalOutcome,
    RenewalState,
)
from services.owner.store.acquiring import find_granted, grant, lock
from services.owner.store.rows import lease_of

# Sorts after every character of a resource: the end of the range of a prefix.
_AFTER_PREFIX: Final = "~"


class LeaseStore:
    """The tables `owner.leases` and `owner.requests`."""

    def __init__(self, database: Database) -> None:
        """The database must be open when a method is called."""
        self._database = database

    async def acquire(self, acquisition: Acquisition) -> Lease:
        """Grant a lease with the next token, or find the one that this request id got.

        Raises LeaseHeld, TakeoverStale, LeaseEnded, RequestIdReused; then nothing has changed.
        """
        async with self._database.transaction() as connection:
            if await lock(connection, acquisition):
                return await find_granted(connection, acquisition)
            return await grant(connection, acquisition)

    async def renew(self, holder: str, renewals: Sequence[Renewal]) -> list[RenewalOutcome]:
        """Extend what is live and of this holder and token; an outcome each, in order."""
        resources = [renewal.resource for renewal in renewals]
        async with self._database.transaction() as connection:
            # In one order, so that two batches never wait for each other.
            await connection.execute(
                """
                WITH durable AS MATERIALIZED (
                    -- see commit_durably
                    SELECT set_config('synchronous_commit', 'on', true)
                    WHERE current_setting('synchronous_commit') IN ('off', 'local', 'remote_write')
                ),
                locked AS (
                    SELECT FROM owner.leases WHERE resource = ANY ($1::text[]) ORDER BY resource FOR UPDATE
                )
                SELECT (SELECT count(*) FROM durable), (SELECT count(*) FROM locked)
                """,
                resources,
            )
            renewed = await connection.fetch(
                """
                WITH moment AS MATERIALIZED (SELECT clock_timestamp() AS at)
                UPDATE owner.leases AS lease
                -- never earlier than what an older grant says, should the clock be set back
                SET expires_at = greatest(lease.expires_at, moment.at + lease.ttl)
                FROM unnest($1::text[], $2::bigint[]) AS asked (resource, token), moment
                WHERE lease.resource = asked.resource
                  AND lease.holder = $3
                  AND lease.token = asked.token
                  AND lease.expires_at > moment.at
                RETURNING lease.resource, lease.expires_at, lease.labels ->> 'role' AS role
                """,
                resources,
                [renewal.token for renewal in renewals],
                holder,
            )
            # Joined here: PostgreSQL takes the batch for a few rows and would compare each with each.
            extended = {row["resource"]: row for row in renewed}
            others = [resource for resource in resources if resource not in extended]
            standing = {row["resource"]: row for row in await _standing(connection, others)}
        return [
            _renewed(renewal, extended[renewal.resource])
            if renewal.resource in extended
            else _refused(renewal, holder, standing.get(renewal.resource))
            for renewal in renewals
        ]

    async def release(self, release: Release) -> Lease:
        """End a lease now; one that has ended stays as it is. LeaseStale unless it is this one."""
        async with self._database.connection() as connection:
            row = await connection.fetchrow(
                """
                UPDATE owner.leases
                SET expires_at = least(expires_at, clock_timestamp())
                WHERE resource = $1 AND holder = $2 AND token = $3
                RETURNING *, false AS live
                """,
                release.resource,
                release.holder,
                release.token,
            )
        if row is None:
            raise release.stale()
        return lease_of(row)

    async def get(self, resource: str) -> Lease:
        """The lease as it stands, or LeaseNotFound."""
        async with self._database.connection() as connection:
            row = await connection.fetchrow(
                """
                SELECT *, expires_at > clock_timestamp() AS live FROM owner.leases WHERE resource = $1
                """,
                resource,
            )
        if row is None:
            raise LeaseNotFound(resource=resource)
        return lease_of(row)

    async def list_leases(self, prefix: str, after: str, *, live_only: bool, limit: int) -> list[Lease]:
        """Leases whose resource begins with `prefix` and sorts after `after`, by resource."""
        async with self._database.connection() as connection:
            rows = await connection.fetch(
                """
                SELECT *, expires_at > clock_timestamp() AS live FROM owner.leases
                WHERE resource >= $1 AND resource < $2 AND resource > $3
                  AND (NOT $4 OR expires_at > clock_timestamp())
                ORDER BY resource
                LIMIT $5
                """,
                prefix,
                prefix + _AFTER_PREFIX,
                after,
                live_only,
                limit,
            )
        return [lease_of(row) for row in rows]

    async def purge_requests(self, retention: timedelta, limit: int) -> int:
        """Forget request ids older than that whose lease ended before that; at most so many."""
        async with self._database.connection() as connection:
            purged: int = await connection.fetchval(
                """
                WITH old AS (
                    SELECT request.holder, request.request_id FROM owner.requests AS request
                    WHERE request.created_at < clock_timestamp() - $1::interval
                      AND NOT EXISTS (
                          SELECT FROM owner.leases AS lease
                          WHERE lease.resource = request.resource
                            AND lease.holder = request.holder
                            AND lease.request_id = request.request_id
                            AND lease.expires_at > clock_timestamp() - $1::interval
                      )
                    ORDER BY request.created_at
                    LIMIT $2
                    FOR UPDATE OF request SKIP LOCKED
                ),
                purged AS (
                    DELETE FROM owner.requests AS request USING old
                    WHERE request.holder = old.holder AND request.request_id = old.request_id
                    RETURNING 1
                )
                SELECT count(*) FROM purged
                """,
                retention,
                limit,
            )
        return purged


async def _standing(connection: Connection, resources: Sequence[str]) -> list[asyncpg.Record]:
    """Who has them; they are locked, but for those that were made since."""
    if not resources:
        return []
    return await connection.fetch(
        """
        SELECT resource, holder, token, expires_at <= clock_timestamp() AS is_over
        FROM owner.leases WHERE resource = ANY ($1::text[])
        """,
        resources,
    )


def _renewed(renewal: Renewal, row: asyncpg.Record) -> RenewalOutcome:
    return RenewalOutcome(
        renewal.resource, renewal.token, RenewalState.RENEWED, row["role"], row["expires_at"]
    )


def _refused(renewal: Renewal, holder: str, row: asyncpg.Record | None) -> RenewalOutcome:
    if row is None:
        state = RenewalState.NOT_FOUND
    elif (row["holder"], row["token"]) != (holder, renewal.token):
        state = RenewalState.STALE
    elif row["is_over"]:
        state = RenewalState.EXPIRED
    else:
        # It was granted after the renewal had looked, to somebody who guessed the token.
        state = RenewalState.NOT_FOUND
    return RenewalOutcome(renewal.resource, renewal.token, state, role=None, expire_time=None)
