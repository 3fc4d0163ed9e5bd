"""The loop renews all leases of its process together, in time, whatever happens (F2, F10)."""

from __future__ import annotations

import itertools
from datetime import timedelta

import grpc
import pytest
from moorage.common.v1.grant_pb2 import Grant
from moorage.owner.v1 import lease_pb2

from services.common.clock import ManualClock
from services.fencing import loop as loop_module
from services.fencing.leases import Loss
from services.fencing.loop import LeaseLoop
from tests.conditions import eventually
from tests.fencing.scripted import START, Context, ScriptedOwner, failing
from tests.fencing.timing import advance_until

RUNNER = {"role": "runner"}


async def test_all_leases_are_renewed_in_one_call_at_a_third(
    owner: ScriptedOwner, leases: LeaseLoop, clock: ManualClock
) -> None:
    held = [await leases.acquire(name, ttl=15, labels=RUNNER) for name in "abc"]
    await clock.until_sleeping(2)
    await clock.advance(4.99)
    assert owner.renewals == []
    await clock.advance(0.01)
    await eventually(lambda: all(lease.expire_time == START + timedelta(minutes=1) for lease in held))
    assert owner.renewals == [["a", "b", "c"]]
    [request] = owner.asked_for(lease_pb2.RenewLeasesRequest)
    assert request.holder == "runner/1"
    assert {item.resource: item.token for item in request.renewals} == {"a": 1, "b": 2, "c": 3}
    assert [lease.deadline for lease in held] == [1000 + 5 + 13.5] * 3


async def test_it_goes_on_for_ever(owner: ScriptedOwner, leases: LeaseLoop, clock: ManualClock) -> None:
    lease = await leases.acquire("a", ttl=15, labels=RUNNER)
    for calls in range(1, 8):
        await clock.until_sleeping(2)
        await clock.advance(5)
        await eventually(lambda calls=calls: len(owner.renewals) == calls)  # type: ignore[misc]
        await eventually(lambda calls=calls: lease.deadline == 1000 + 5 * calls + 13.5)  # type: ignore[misc]
    assert lease.held


async def test_a_lease_taken_while_the_loop_sleeps_is_renewed_in_time(
    owner: ScriptedOwner, leases: LeaseLoop, clock: ManualClock
) -> None:
    await leases.acquire("long", ttl=60, labels=RUNNER)
    await clock.until_sleeping(2)
    await clock.advance(1)
    short = await leases.acquire("short", ttl=3, labels=RUNNER)
    await clock.until_sleeping(2)
    await clock.advance(1)
    await eventually(lambda: short.expire_time == START + timedelta(minutes=1))
    # Renewed together, although the long one was not due.
    assert owner.renewals == [["long", "short"]]


async def test_more_leases_than_fit_into_a_call(
    owner: ScriptedOwner, leases: LeaseLoop, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loop_module, "_BATCH", 2)
    for name in "abcde":
        await leases.acquire(name, ttl=15, labels=RUNNER)
    await clock.until_sleeping(2)
    await clock.advance(5)
    await eventually(lambda: len(owner.renewals) == 3)
    assert sorted(itertools.chain(*owner.renewals)) == list("abcde")


async def test_it_survives_every_failure(owner: ScriptedOwner, leases: LeaseLoop, clock: ManualClock) -> None:
    lease = await leases.acquire("a", ttl=15, labels=RUNNER)
    codes = [
        grpc.StatusCode.UNAVAILABLE,
        grpc.StatusCode.INTERNAL,
        grpc.StatusCode.UNKNOWN,
        grpc.StatusCode.INVALID_ARGUMENT,
        grpc.StatusCode.UNIMPLEMENTED,
        grpc.StatusCode.CANCELLED,
        grpc.StatusCode.DEADLINE_EXCEEDED,
    ]
    owner.before = [failing(code) for code in codes]
    await advance_until(clock, lambda: lease.expire_time > START + timedelta(seconds=15))
    assert len(owner.renewals) == len(codes) + 1
    assert lease.held


async def test_it_survives_an_answer_without_a_result_for_each(
    owner: ScriptedOwner, leases: LeaseLoop, clock: ManualClock
) -> None:
    held = [await leases.acquire(name, ttl=15, labels=RUNNER) for name in "ab"]
    owner.renewal_results = 0.5
    await advance_until(clock, lambda: len(owner.renewals) >= 2)
    assert all(lease.expire_time == START + timedelta(seconds=15) for lease in held)
    owner.renewal_results = 1.0
    await advance_until(
        clock, lambda: all(lease.expire_time > START + timedelta(seconds=15) for lease in held)
    )


async def test_a_result_it_does_not_know_harms_no_other_lease(
    owner: ScriptedOwner, leases: LeaseLoop, clock: ManualClock
) -> None:
    odd = await leases.acquire("a", ttl=15, labels=RUNNER)
    good = await leases.acquire("b", ttl=15, labels=RUNNER)
    owner.renewal_states["a"] = lease_pb2.RENEWAL_STATE_UNSPECIFIED
    await advance_until(clock, lambda: good.expire_time > START + timedelta(seconds=15))
    await advance_until(clock, odd.lost.is_set)
    assert (odd.loss, good.held) == (Loss.DEADLINE, True)
    # It was asked for again after a pause each time, not in a rush.
    assert len(owner.renewals) < 100


async def test_those_who_follow_a_lease_get_each_new_grant(leases: LeaseLoop, clock: ManualClock) -> None:
    lease = await leases.acquire("a", ttl=15, labels=RUNNER)
    shown: list[Grant] = []

    def fail(_grant: Grant) -> None:
        raise RuntimeError("a follower's mistake")

    with lease.followed_by(fail), lease.followed_by(shown.append):
        await clock.until_sleeping(2)
        await clock.advance(5)
        await eventually(lambda: shown == [lease.grant])
    await clock.until_sleeping(2)
    await clock.advance(5)
    await eventually(lambda: lease.deadline == 1010 + 13.5)
    assert len(shown) == 1


@pytest.mark.parametrize("slow", ["acquire", "renew"])
async def test_time_is_counted_from_before_the_request_was_sent(
    owner: ScriptedOwner, leases: LeaseLoop, clock: ManualClock, slow: str
) -> None:
    async def take_two_seconds(_context: Context) -> None:
        await clock.advance(2)

    if slow == "acquire":
        owner.before = [take_two_seconds]
        lease = await leases.acquire("a", ttl=15, labels=RUNNER)
        assert clock.boottime() == 1002
        assert lease.deadline == 1000 + 13.5
        return
    lease = await leases.acquire("a", ttl=15, labels=RUNNER)
    await clock.until_sleeping(2)
    owner.before = [take_two_seconds]
    await clock.advance(5)
    await eventually(lambda: lease.deadline == 1005 + 13.5)
    assert clock.boottime() == 1007
