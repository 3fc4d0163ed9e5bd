"""PostgreSQL is killed and started again under load: no lease is lost, none is held twice."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AsyncExitStack
from functools import partial

import grpc
import pytest

from services.cli.postgres.embedded import EmbeddedPostgres
from services.common.channels import open_channel
from services.common.clock import SystemClock
from services.common.migrations import migrate
from services.fencing.leases import HeldLease
from services.fencing.loop import LeaseLoop
from tests.conditions import eventually
from tests.owner.replicas import serving
from tests.races.lease_callers import BYTES, Caller, callers_of, play
from tests.races.lease_checker import violations
from tests.races.lease_history import Answer
from tests.servers import own_server

TTL = 12.0
CALLERS = 20
# More than they can make: they are stopped.
CALLS = 10_000
HELD = 50

Channels = list[grpc.aio.Channel]


@pytest.fixture
def postgres(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedPostgres]:
    """A server of this test only, to be killed."""
    with own_server(tmp_path_factory) as server:
        yield server


@pytest.fixture
async def channels(postgres: EmbeddedPostgres) -> AsyncIterator[Channels]:
    """To two replicas."""
    await migrate(postgres.url, "owner")
    async with AsyncExitStack() as stack:
        endpoints = [await stack.enter_async_context(serving(postgres.url)) for _ in range(2)]
        yield [await stack.enter_async_context(open_channel(endpoint)) for endpoint in endpoints]


@pytest.mark.timeout(120)
async def test_a_restart_within_the_lease_costs_nothing(
    postgres: EmbeddedPostgres, channels: Channels
) -> None:
    leases = LeaseLoop("runner/1", channels[0], SystemClock())
    running = asyncio.create_task(leases.run())
    held = [
        await leases.acquire(f"held/{number}", ttl=TTL, labels={"role": "runner"}) for number in range(HELD)
    ]
    scripts = [random.randbytes(BYTES * CALLS) for _ in range(CALLERS)]
    callers = callers_of(channels, scripts, "restarts")
    playing = asyncio.create_task(play(callers))
    for end in (postgres.kill, postgres.stop):
        await eventually(lambda: not _miss_answers(callers), within=TTL, what="the callers get answers")
        end()
        await eventually(partial(_miss_answers, callers), what="they miss an answer")
        before = [lease.grant for lease in held]
        postgres.start()
        await eventually(partial(_renewed, held, before), within=TTL, what="the leases are renewed")
    for caller in callers:
        caller.stop()
    problems = violations(await playing)
    assert not problems, "\n".join(problems)
    assert all(lease.held and lease.token == 1 for lease in held)
    running.cancel()
    await asyncio.wait({running})


def _miss_answers(callers: list[Caller]) -> bool:
    """Nobody goes away during a renewal, so that one without an answer is the database's doing."""
    last = [caller.history[-1] for caller in callers if caller.history]
    return any((event.call, event.answer) == ("renew", Answer.UNKNOWN) for event in last)


def _renewed(held: list[HeldLease], before: Sequence[object]) -> bool:
    return all(lease.grant != grant for lease, grant in zip(held, before, strict=True))
