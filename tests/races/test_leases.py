"""Many callers, two replicas of owner, one real database."""

from __future__ import annotations

import asyncio
import os
import random
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import grpc
import pytest
from hypothesis import Phase, given, seed, settings
from hypothesis.strategies import binary, lists
from moorage.owner.v1 import lease_pb2

from services.common.errors import AlreadyExists, FailedPrecondition, MoorageError
from tests.owner.replicas import Holder, replica
from tests.races.lease_callers import BYTES, callers_of, play
from tests.races.lease_checker import violations
from tests.races.lease_history import Answer

# How often the random races are run; more than a few finds what is rare.
ROUNDS = int(os.environ.get("RACE_ROUNDS", "3"))
SEED = int(os.environ.get("RACE_SEED", random.randrange(1_000_000)))
CALLERS = 20
CALLS = 50

_POSSIBLE = {
    *(("acquire", answer) for answer in (Answer.GRANTED, Answer.HELD, Answer.ENDED, Answer.UNKNOWN)),
    *(("takeover", answer) for answer in (Answer.GRANTED, Answer.STALE, Answer.ENDED, Answer.UNKNOWN)),
    *(("renew", answer) for answer in (Answer.RENEWED, Answer.NOT_FOUND, Answer.EXPIRED, Answer.STALE)),
    *(("release", answer) for answer in (Answer.RELEASED, Answer.STALE, Answer.UNKNOWN)),
}

Channels = list[grpc.aio.Channel]


@pytest.fixture
async def channels(database_url: str) -> AsyncIterator[Channels]:
    """To two replicas on one database."""
    async with AsyncExitStack() as stack:
        yield [await stack.enter_async_context(replica(database_url)) for _ in range(2)]


@pytest.mark.timeout(60 + 30 * ROUNDS)
async def test_random_histories_have_an_explanation(channels: Channels) -> None:
    """Each is of 1,000 steps that 20 callers make at the same time."""
    answers: Counter[tuple[str, Answer]] = Counter()
    for number, scripts in enumerate(_drawn(ROUNDS)):
        history = await play(callers_of(channels, scripts, str(number)))
        assert len(history) >= CALLERS * CALLS * 0.9
        problems = violations(history)
        assert not problems, f"RACE_SEED={SEED}, round {number}:\n" + "\n".join(problems)
        answers.update((event.call, event.answer) for event in history)
    # A run in which something never happened shows nothing of it.
    assert not _POSSIBLE - set(answers), answers


async def test_one_of_many_gets_a_new_lease(channels: Channels) -> None:
    """The row does not exist yet: who makes it is part of the race."""
    for number in range(5):
        outcomes = await _acquire_all(channels, f"new/{number}")
        assert sorted(outcomes.values()) == ["HELD"] * (CALLERS - 1) + ["token 1"]


async def test_one_of_many_gets_a_free_lease_with_the_next_token(channels: Channels) -> None:
    for token in range(1, 16):
        outcomes = await _acquire_all(channels, "again")
        assert sorted(outcomes.values()) == ["HELD"] * (CALLERS - 1) + [f"token {token}"]
        [winner] = [name for name, outcome in outcomes.items() if outcome != "HELD"]
        await Holder(channels[token % 2], winner).release("again", token)


async def test_repeated_calls_at_the_same_time_get_one_lease(channels: Channels) -> None:
    for number in range(10):
        responses = await asyncio.gather(
            *(
                Holder(channels[index % 2], "alice/1").acquire(f"r/{number}", request_id=f"id-{number}")
                for index in range(10)
            )
        )
        assert len({response.lease.SerializeToString(deterministic=True) for response in responses}) == 1
        assert responses[0].lease.token == 1


async def test_one_id_for_two_resources_at_the_same_time_gets_one_of_them(channels: Channels) -> None:
    for number in range(10):
        outcomes = await asyncio.gather(
            *(
                Holder(channels[index], "alice/1").acquire(f"r/{number}/{index}", request_id=f"id-{number}")
                for index in range(2)
            ),
            return_exceptions=True,
        )
        assert sorted(type(outcome).__name__ for outcome in outcomes) == [
            "AcquireLeaseResponse",
            "AlreadyExists",
        ]
        [refusal] = [outcome for outcome in outcomes if isinstance(outcome, AlreadyExists)]
        assert refusal.reason_name == "REQUEST_ID_REUSED"
        [granted] = [lease for lease in (await _list(channels, f"r/{number}/")) if lease.live]
        assert granted.token == 1


async def test_batches_in_opposite_orders_do_not_stop_each_other(channels: Channels) -> None:
    alice = [Holder(channel, "alice/1") for channel in channels]
    names = [f"r/{number:02}" for number in range(50)]
    for name in names:
        await alice[0].acquire(name)
    items = [(name, 1) for name in names]
    batches = [items, items[::-1], items[25:] + items[:25], items[1::2] + items[::2]] * 5
    results = await asyncio.gather(*(alice[i % 2].renew(*batch) for i, batch in enumerate(batches)))
    for batch, answers in zip(batches, results, strict=True):
        assert [(answer.resource, answer.state) for answer in answers] == [
            (name, lease_pb2.RENEWAL_STATE_RENEWED) for name, _ in batch
        ]


def _drawn(rounds: int) -> list[list[bytes]]:
    """What hypothesis comes up with: for each round the scripts of all callers.

    It also tries what is extreme, such as all doing the same. To shrink would say nothing: how
    calls meet is another each time.
    """
    drawn: list[list[bytes]] = []
    script = binary(min_size=BYTES * CALLS, max_size=BYTES * CALLS)

    @seed(SEED)
    @settings(max_examples=rounds, phases=[Phase.generate], database=None, deadline=None)
    @given(lists(script, min_size=CALLERS, max_size=CALLERS))
    def draw(scripts: list[bytes]) -> None:
        drawn.append(scripts)

    draw()
    return drawn


async def _acquire_all(channels: Channels, resource: str) -> dict[str, str]:
    """What each of many holders was told that asked at the same time."""
    names = [f"holder-{number}/1" for number in range(CALLERS)]
    outcomes = await asyncio.gather(
        *(Holder(channels[index % 2], name).acquire(resource) for index, name in enumerate(names)),
        return_exceptions=True,
    )
    told = {
        name: f"token {outcome.lease.token}"
        for name, outcome in zip(names, outcomes, strict=True)
        if isinstance(outcome, lease_pb2.AcquireLeaseResponse)
    }
    for name, outcome in zip(names, outcomes, strict=True):
        if isinstance(outcome, FailedPrecondition):
            assert outcome.reason_name == "LEASE_HELD"
            assert told[outcome.metadata["holder"]].startswith("token")
            told[name] = "HELD"
        elif isinstance(outcome, MoorageError):
            told[name] = repr(outcome)
    return told


async def _list(channels: Channels, prefix: str) -> list[lease_pb2.Lease]:
    return list((await Holder(channels[0], "anybody/1").list_leases(prefix)).leases)
