"""A lease is lost once, in time, and its holder is told whatever the loop waits for (F2, F7, F10)."""

from __future__ import annotations

import asyncio

import pytest
from moorage.owner.v1 import lease_pb2

from services.common.clock import ManualClock
from services.fencing.leases import HeldLease, Loss
from services.fencing.loop import LeaseLoop
from tests.conditions import eventually
from tests.fencing.scripted import Context, ScriptedOwner

RUNNER = {"role": "runner"}


@pytest.mark.parametrize(
    ("state", "loss"),
    [
        (lease_pb2.RENEWAL_STATE_NOT_FOUND, Loss.NOT_FOUND),
        (lease_pb2.RENEWAL_STATE_EXPIRED, Loss.EXPIRED),
        (lease_pb2.RENEWAL_STATE_STALE, Loss.STALE),
    ],
)
async def test_a_lease_that_owner_does_not_renew_is_lost(
    owner: ScriptedOwner,
    leases: LeaseLoop,
    clock: ManualClock,
    state: lease_pb2.RenewalState.ValueType,
    loss: Loss,
) -> None:
    lost = await leases.acquire("lost", ttl=15, labels=RUNNER)
    kept = await leases.acquire("kept", ttl=15, labels=RUNNER)
    told: list[HeldLease] = []
    lost.on_lost(told.append)
    kept.on_lost(told.append)
    owner.renewal_states["lost"] = state
    await clock.until_sleeping(2)
    await clock.advance(5)
    await asyncio.wait_for(lost.lost.wait(), 5)
    assert (lost.loss, lost.held, told) == (loss, False, [lost])
    assert (kept.held, list(leases.leases)) == (True, ["kept"])
    await clock.until_sleeping(2)
    await clock.advance(5)
    await eventually(lambda: len(owner.renewals) == 2)
    assert owner.renewals[1] == ["kept"]


async def test_the_deadline_passes_while_a_renewal_hangs(
    owner: ScriptedOwner, leases: LeaseLoop, clock: ManualClock
) -> None:
    lease = await leases.acquire("a", ttl=15, labels=RUNNER)
    told: list[float] = []
    lease.on_lost(lambda _: told.append(clock.boottime()))
    hung, answer, answered = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def hang(_context: Context) -> None:
        hung.set()
        await answer.wait()

    async def finish(_context: Context) -> None:
        answered.set()

    owner.before, owner.after = [hang], [finish]
    await clock.until_sleeping(2)
    await clock.advance(5)
    await hung.wait()
    await clock.advance(8.4)
    assert lease.held
    await clock.advance(0.1)
    assert (lease.loss, lease.held) == (Loss.DEADLINE, False)
    assert told == [pytest.approx(1013.5)]
    # The answer comes after all, and says that the lease was renewed: too late.
    answer.set()
    await answered.wait()
    other = await leases.acquire("b", ttl=15, labels=RUNNER)
    await clock.until_sleeping(2)
    await clock.advance(5)
    await eventually(lambda: len(owner.renewals) == 2)
    assert owner.renewals[1] == ["b"]
    assert (other.held, lease.held, lease.lost.is_set(), len(told)) == (True, False, True, 1)


async def test_after_a_pause_it_is_not_held_before_anything_else_ran(
    leases: LeaseLoop, clock: ManualClock
) -> None:
    """A process that comes back asks the clock, not the loop that slept with it."""
    lease = await leases.acquire("a", ttl=15, labels=RUNNER)
    clock._boottime += 13.5
    assert not lease.held
    assert not lease.lost.is_set()


async def test_a_failing_callback_keeps_nobody_from_being_told(
    owner: ScriptedOwner, leases: LeaseLoop, clock: ManualClock
) -> None:
    told: list[str] = []

    def fail(_lease: HeldLease) -> None:
        raise RuntimeError("a holder's mistake")

    for name in "ab":
        lease = await leases.acquire(name, ttl=15, labels=RUNNER)
        lease.on_lost(fail)
        lease.on_lost(lambda each: told.append(each.resource))
        owner.renewal_states[name] = lease_pb2.RENEWAL_STATE_STALE
    await clock.until_sleeping(2)
    await clock.advance(5)
    await eventually(lambda: sorted(told) == ["a", "b"])


async def test_who_asks_after_the_loss_is_told_at_once(
    owner: ScriptedOwner, leases: LeaseLoop, clock: ManualClock
) -> None:
    lease = await leases.acquire("a", ttl=15, labels=RUNNER)
    owner.renewal_states["a"] = lease_pb2.RENEWAL_STATE_EXPIRED
    await clock.until_sleeping(2)
    await clock.advance(5)
    await lease.lost.wait()
    told: list[HeldLease] = []
    lease.on_lost(told.append)
    assert told == [lease]


async def test_a_resource_can_be_taken_again_after_the_loss(
    owner: ScriptedOwner, leases: LeaseLoop, clock: ManualClock
) -> None:
    first = await leases.acquire("a", ttl=15, labels=RUNNER)
    owner.renewal_states["a"] = lease_pb2.RENEWAL_STATE_STALE
    await clock.until_sleeping(2)
    await clock.advance(5)
    await first.lost.wait()
    owner.renewal_states.clear()
    second = await leases.acquire("a", ttl=15, labels=RUNNER)
    assert (second.token, second.held, first.held) == (2, True, False)
    assert leases.leases == {"a": second}
