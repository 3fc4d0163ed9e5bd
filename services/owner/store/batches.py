"""Many callers' acquisitions and releases in one transaction, for the price of one commit.

It waits for nobody: rows that others have locked are left to a transaction of their own, and so is
whatever else is out of the ordinary. The rules are those of `acquiring`: locks first, in one order,
and expiry judged by the database's clock in a later statement (F2).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TypeAlias

import asyncpg

from services.common.database import Connection, Database
from services.owner.leases import Acquisition, Lease, LeaseHeld, LeaseStale, Release
from services.owner.store.rows import lease_of

Outcome: TypeAlias = "Lease | LeaseHeld | LeaseStale"


class BatchStore:
    """The tables `owner.leases` and `owner.requests`, for many at once."""

    def __init__(self, database: Database) -> None:
        """The database must be open when a method is called."""
        self._database = database

    async def run(
        self, acquisitions: Sequence[Acquisition], releases: Sequence[Release]
    ) -> Mapping[str, Outcome]:
        """What became of each, by resource; nothing was changed of those that are missing.

        No resource and no holder's request id may be named twice; takeovers have no place here.
        """
        try:
            async with self._database.transaction() as connection:
                return await _run(connection, acquisitions, releases)
        except asyncpg.LockNotAvailableError:
            # One of the request ids is under way elsewhere.
            return {}


async def _run(
    connection: Connection, acquisitions: Sequence[Acquisition], releases: Sequence[Release]
) -> Mapping[str, Outcome]:
    names = [*(each.resource for each in acquisitions), *(each.resource for each in releases)]
    locked, new = await _lock(connection, acquisitions, names)
    asked = [
        each
        for each in acquisitions
        if each.resource in locked and (not each.request_id or (each.holder, each.request_id) in new)
    ]
    ending = [each for each in releases if each.resource in locked]
    outcomes: dict[str, Outcome] = {}
    if asked or ending:
        outcomes.update(await _change(connection, asked, ending))
    outcomes.update({each.resource: each.stale() for each in ending if each.resource not in outcomes})
    outcomes.update(await _held(connection, [r.resource for r in asked if r.resource not in outcomes]))
    granted = {name for name, outcome in outcomes.items() if isinstance(outcome, Lease)}
    await _forget(
        connection,
        [
            each
            for each in acquisitions
            if (each.holder, each.request_id) in new and each.resource not in granted
        ],
    )
    return outcomes


async def _lock(
    connection: Connection, acquisitions: Sequence[Acquisition], resources: Sequence[str]
) -> tuple[set[str], set[tuple[str, str]]]:
    """Which rows are held now, and which request ids were stored just now."""
    rows = await connection.fetch(
        """
        WITH settings AS MATERIALIZED (
            SELECT set_config('lock_timeout', '100ms', true),
                   -- see commit_durably
                   CASE WHEN current_setting('synchronous_commit') IN ('off', 'local', 'remote_write')
                        THEN set_config('synchronous_commit', 'on', true) END
        ),
        remembered AS (
            INSERT INTO owner.requests (holder, request_id, resource, fingerprint)
            SELECT * FROM unnest($1::text[], $2::text[], $3::text[], $4::bytea[])
                AS asked (holder, request_id, resource, fingerprint)
            WHERE request_id <> '' AND (SELECT count(*) FROM settings) = 1
            ORDER BY holder, request_id
            ON CONFLICT DO NOTHING
            RETURNING holder, request_id
        ),
        locked AS (
            SELECT resource FROM owner.leases
            -- counting is what puts the request ids before this one
            WHERE resource = ANY ($5::text[]) AND (SELECT count(*) FROM remembered) >= 0
            ORDER BY resource
            FOR UPDATE SKIP LOCKED
        )
        SELECT resource, NULL AS holder, NULL AS request_id FROM locked
        UNION ALL
        SELECT NULL, holder, request_id FROM remembered
        """,
        [each.holder for each in acquisitions],
        [each.request_id for each in acquisitions],
        [each.resource for each in acquisitions],
        [each.fingerprint for each in acquisitions],
        list(resources),
    )
    locked = {row["resource"] for row in rows if row["resource"] is not None}
    return locked, {(row["holder"], row["request_id"]) for row in rows if row["resource"] is None}


async def _change(
    connection: Connection, asked: Sequence[Acquisition], ending: Sequence[Release]
) -> Mapping[str, Lease]:
    """The next token of each that has ended; the end of each that is this holder's and has this token."""
    rows = await connection.fetch(
        """
        WITH moment AS MATERIALIZED (SELECT clock_timestamp() AS at),
        granted AS (
            UPDATE owner.leases AS lease
            SET holder = asked.holder, token = lease.token + 1, acquired_at = moment.at,
                expires_at = moment.at + asked.ttl, ttl = asked.ttl, endpoint = asked.endpoint,
                labels = asked.labels::jsonb, request_id = asked.request_id,
                replaced_expires_at = CASE
                    WHEN lease.replaced_expires_at > moment.at THEN lease.replaced_expires_at
                END
            FROM unnest($1::text[], $2::text[], $3::interval[], $4::text[], $5::text[], $6::text[])
                AS asked (resource, holder, ttl, endpoint, labels, request_id), moment
            WHERE lease.resource = asked.resource AND lease.expires_at <= moment.at
            RETURNING lease.*
        ),
        ended AS (
            UPDATE owner.leases AS lease SET expires_at = least(lease.expires_at, moment.at)
            FROM unnest($7::text[], $8::text[], $9::bigint[]) AS asked (resource, holder, token), moment
            WHERE lease.resource = asked.resource AND lease.holder = asked.holder
              AND lease.token = asked.token
            RETURNING lease.*
        )
        SELECT granted.*, true AS live FROM granted
        UNION ALL
        SELECT ended.*, false AS live FROM ended
        """,
        [each.resource for each in asked],
        [each.holder for each in asked],
        [each.ttl for each in asked],
        [each.endpoint for each in asked],
        [json.dumps(each.labels) for each in asked],
        [each.request_id for each in asked],
        [each.resource for each in ending],
        [each.holder for each in ending],
        [each.token for each in ending],
    )
    return {row["resource"]: lease_of(row) for row in rows}


async def _held(connection: Connection, resources: Sequence[str]) -> Mapping[str, LeaseHeld]:
    if not resources:
        return {}
    rows = await connection.fetch(
        """
        SELECT resource, holder, expires_at,
               greatest(0, extract(epoch FROM expires_at - clock_timestamp()))::float8 AS remaining
        FROM owner.leases WHERE resource = ANY ($1::text[])
        """,
        list(resources),
    )
    return {
        row["resource"]: LeaseHeld(
            resource=row["resource"],
            holder=row["holder"],
            expire_time=row["expires_at"],
            retry_after=row["remaining"],
        )
        for row in rows
    }


async def _forget(connection: Connection, refused: Sequence[Acquisition]) -> None:
    """Of a refused call nothing is stored, and what is left to another transaction is new to that."""
    if refused:
        await connection.execute(
            """
            DELETE FROM owner.requests AS request
            USING unnest($1::text[], $2::text[]) AS refused (holder, request_id)
            WHERE request.holder = refused.holder AND request.request_id = refused.request_id
            """,
            [each.holder for each in refused],
            [each.request_id for each in refused],
        )
