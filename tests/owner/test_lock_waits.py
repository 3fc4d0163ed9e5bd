"""Expiry while a call waits for a row's lock: judged after the wait, never before (F2)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from moorage.owner.v1 import lease_pb2

from services.common.errors import Aborted
from tests.conditions import eventually
from tests.owner.replicas import Connection, Holder, until_ended

TTL = 1.0


async def test_a_renewal_that_waited_past_the_end_revives_nothing(
    alice: Holder, connection: Connection
) -> None:
    await alice.acquire("r", TTL)
    async with _locked(connection, "r"):
        renewing = asyncio.create_task(alice.renew(("r", 1)))
        await _waits_while_live(connection, "r")
        await until_ended(connection, "r")
    [result] = await renewing
    assert result.state == lease_pb2.RENEWAL_STATE_EXPIRED
    assert not (await alice.get("r")).live


async def test_a_batch_is_judged_when_it_has_all_locks(alice: Holder, connection: Connection) -> None:
    """The first row was free and live when the batch came; it waited for the second."""
    await alice.acquire("a", TTL)
    await alice.acquire("b", 30.0)
    async with _locked(connection, "b"):
        renewing = asyncio.create_task(alice.renew(("b", 1), ("a", 1)))
        await _waits_while_live(connection, "a")
        await until_ended(connection, "a")
    results = await renewing
    assert [result.state for result in results] == [
        lease_pb2.RENEWAL_STATE_RENEWED,
        lease_pb2.RENEWAL_STATE_EXPIRED,
    ]


async def test_a_renewal_that_waited_counts_from_the_end_of_its_wait(
    alice: Holder, connection: Connection
) -> None:
    await alice.acquire("r", 30.0)
    async with _locked(connection, "r"):
        renewing = asyncio.create_task(alice.renew(("r", 1)))
        await _waits_while_live(connection, "r")
        unlocked_at = await connection.fetchval("SELECT clock_timestamp()")
    await renewing
    assert await connection.fetchval("SELECT expires_at - ttl >= $1 FROM owner.leases", unlocked_at)


async def test_an_acquirer_that_waited_past_the_end_gets_the_lease(
    alice: Holder, bob: Holder, connection: Connection
) -> None:
    await alice.acquire("r", TTL)
    async with _locked(connection, "r"):
        acquiring = asyncio.create_task(bob.acquire("r"))
        await _waits_while_live(connection, "r")
        await until_ended(connection, "r")
    lease = (await acquiring).lease
    assert (lease.holder, lease.token) == ("bob/1", 2)


async def test_a_repeated_acquisition_that_waited_past_the_end_is_stale(
    alice: Holder, connection: Connection
) -> None:
    await alice.acquire("r", TTL, request_id="one")
    async with _locked(connection, "r"):
        acquiring = asyncio.create_task(alice.acquire("r", TTL, request_id="one"))
        await _waits_while_live(connection, "r")
        await until_ended(connection, "r")
    with pytest.raises(Aborted):
        await acquiring


async def test_a_renewal_that_waited_for_another_grant_is_stale(
    alice: Holder, bob: Holder, connection: Connection
) -> None:
    """The row changes hands in the very transaction that the renewal waits for."""
    await alice.acquire("r", 30.0)
    async with _locked(connection, "r"):
        renewing = asyncio.create_task(alice.renew(("r", 1)))
        await _waits_while_live(connection, "r")
        await connection.execute("UPDATE owner.leases SET holder = 'bob/1', token = token + 1")
    [result] = await renewing
    assert result.state == lease_pb2.RENEWAL_STATE_STALE
    assert (await bob.get("r")).holder == "bob/1"


async def test_a_release_that_waited_for_another_grant_changes_nothing(
    alice: Holder, bob: Holder, connection: Connection
) -> None:
    await alice.acquire("r", 30.0)
    async with _locked(connection, "r"):
        releasing = asyncio.create_task(alice.release("r", 1))
        await _waits_while_live(connection, "r")
        await connection.execute("UPDATE owner.leases SET holder = 'bob/1', token = token + 1")
    with pytest.raises(Aborted):
        await releasing
    assert (await bob.get("r")).live


@asynccontextmanager
async def _locked(connection: Connection, resource: str) -> AsyncIterator[None]:
    """Hold the row's lock within the block."""
    async with connection.transaction():
        await connection.execute("SELECT FROM owner.leases WHERE resource = $1 FOR UPDATE", resource)
        yield


async def _waits_while_live(connection: Connection, resource: str) -> None:
    """Return when a session waits for a lock that this one has, at a time when the lease is in force."""

    async def is_waiting() -> bool:
        waiting: bool = await connection.fetchval(
            """
            SELECT EXISTS (
                SELECT FROM pg_stat_activity WHERE pg_backend_pid() = ANY (pg_blocking_pids(pid))
            )
            """
        )
        return waiting

    await eventually(is_waiting, what="a call waits for the lock")
    assert await connection.fetchval(
        "SELECT expires_at > clock_timestamp() FROM owner.leases WHERE resource = $1", resource
    ), "the lease ended too early for this test to show anything"
