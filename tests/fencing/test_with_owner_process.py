"""A holder and real owner processes that die, hang and come back."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys
from datetime import UTC, datetime
from pathlib import Path

import asyncpg
import grpc

from services.common.channels import open_channel
from services.common.clock import SystemClock
from services.common.errors import FailedPrecondition
from services.fencing.errors import LeaseHeld
from services.fencing.leases import HeldLease, Loss
from services.fencing.loop import LeaseLoop
from tests.conditions import eventually
from tests.fencing.running import holding, ready_owner
from tests.owner.replicas import Holder, serving, until_ended

RUNNER = {"role": "runner"}


async def test_a_lease_outlives_a_restart_of_owner(database_url: str) -> None:
    async with ready_owner(database_url) as owner, holding(owner.endpoint) as leases:
        lease = await leases.acquire("a", ttl=15, labels=RUNNER)
        await owner.kill()
        async with ready_owner(database_url, owner.endpoint):
            granted = lease.grant
            await eventually(lambda: lease.grant != granted, within=14, what="a renewal by the new process")
            assert (lease.held, lease.token) == (True, 1)


async def test_without_owner_a_lease_is_lost_before_it_ends(database_url: str) -> None:
    async with ready_owner(database_url) as owner, holding(owner.endpoint) as leases:
        lease = await leases.acquire("a", ttl=2, labels=RUNNER)
        await owner.kill()
        await _assert_lost_in_time(lease)


async def test_with_a_hanging_owner_a_lease_is_lost_before_it_ends(database_url: str) -> None:
    """A stopped process refuses nothing and answers nothing."""
    async with ready_owner(database_url) as owner, holding(owner.endpoint) as leases:
        lease = await leases.acquire("a", ttl=2, labels=RUNNER)
        owner.signal(signal.SIGSTOP)
        await _assert_lost_in_time(lease)
        connection = await asyncpg.connect(database_url)
        await until_ended(connection, "a")
        await connection.close()
        owner.signal(signal.SIGCONT)
        again = await _acquire_at_last(leases, "a")
        assert again.token > lease.token
        granted = again.grant
        await eventually(lambda: again.grant != granted, what="it is renewed again")
        assert again.held


async def test_another_replica_takes_over_the_renewals(database_url: str) -> None:
    async with ready_owner(database_url) as first, ready_owner(database_url) as second:
        addresses = f"ipv4:{first.endpoint},{second.endpoint}"
        async with holding(addresses) as leases:
            lease = await leases.acquire("a", ttl=6, labels=RUNNER)
            first.signal(signal.SIGSTOP)
            for _ in range(2):
                granted = lease.grant
                await eventually(lambda granted=granted: lease.grant != granted)  # type: ignore[misc]
            assert lease.held
            first.signal(signal.SIGCONT)


async def test_a_paused_holder_knows_at_once_that_its_lease_has_ended(database_url: str) -> None:
    async with serving(database_url) as endpoint, open_channel(endpoint) as channel:
        program = str(Path(__file__).with_name("holder_program.py"))
        holder = await asyncio.create_subprocess_exec(
            *(sys.executable, program, endpoint, "a", "1.5"),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
        )
        assert holder.stdin is not None
        assert holder.stdout is not None
        try:
            assert await holder.stdout.readline() == b"1\n"
            holder.stdin.write(b"held?\n")
            assert await holder.stdout.readline() == b"True\n"
            holder.send_signal(signal.SIGSTOP)
            successor = await _acquire_when_ended(database_url, channel)
            holder.stdin.write(b"held?\n")
            holder.send_signal(signal.SIGCONT)
            assert await holder.stdout.readline() == b"False\n"
            # Nothing of what it does now takes the lease away again.
            holder.stdin.write(b"held?\n")
            assert await holder.stdout.readline() == b"False\n"
            assert (await Holder(channel, "bob/1").get("a")).token == successor
        finally:
            holder.kill()
            await holder.wait()


async def _assert_lost_in_time(lease: HeldLease) -> None:
    """The clocks of holder and database are one here, so the order of the two ends can be seen."""
    await asyncio.wait_for(lease.lost.wait(), 10)
    assert datetime.now(UTC) < lease.expire_time
    assert SystemClock().boottime() >= lease.deadline
    assert lease.loss is Loss.DEADLINE


async def _acquire_at_last(leases: LeaseLoop, resource: str) -> HeldLease:
    """A renewal that hung with owner may still be carried out, and then its lease has to end first."""
    async with asyncio.timeout(20):
        while True:
            try:
                return await leases.acquire(resource, ttl=2, labels=RUNNER)
            except LeaseHeld as held:
                await asyncio.sleep(held.retry_after or 0.01)


async def _acquire_when_ended(database_url: str, channel: grpc.aio.Channel) -> int:
    """A renewal that was on its way when the holder was paused may still extend the lease."""
    connection = await asyncpg.connect(database_url)
    try:
        while True:
            await until_ended(connection, "a")
            with contextlib.suppress(FailedPrecondition):
                return (await Holder(channel, "bob/1").acquire("a", 30.0)).lease.token
    finally:
        await connection.close()
