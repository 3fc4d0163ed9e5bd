"""Rows of `owner.leases` as leases."""

from __future__ import annotations

import json

import asyncpg

from services.owner.leases import Lease


def lease_of(row: asyncpg.Record) -> Lease:
    """All columns, and `live` as the query judged it."""
    return Lease(
        resource=row["resource"],
        holder=row["holder"],
        token=row["token"],
        acquire_time=row["acquired_at"],
        expire_time=row["expires_at"],
        ttl=row["ttl"],
        endpoint=row["endpoint"],
        labels=json.loads(row["labels"]),
        live=row["live"],
        replaced_expire_time=row["replaced_expires_at"],
    )
