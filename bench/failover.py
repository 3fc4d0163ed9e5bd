"""Failover: a runner is killed in the middle of a turn, and the next turn begins on another one.

From the kill to the end of the turn that was lost, and to the begin of the next one, which the client
starts as soon as it sees that end. The reference is the length of a lease: it ends a third
of that earlier if the kill came just before a renewal.
"""

from __future__ import annotations

import time
from collections import defaultdict
from typing import TYPE_CHECKING, Final

from moorage.session.v1 import session_pb2
from moorage.session.v1.session_pb2_grpc import SessionServiceStub

from bench.harness.crew import Crew, crew
from bench.harness.places import scratch
from bench.harness.results import Effort, Report
from bench.harness.talking import watched
from services.common.channels import open_channel

if TYPE_CHECKING:
    from moorage.session.v1.session_pb2_grpc import SessionServiceAsyncStub

_LEASE: Final = 5.0
_NAMES: Final = ("ada", "bea")


async def measure(effort: Effort) -> Report:
    """One kill for each round."""
    seen: dict[str, list[float]] = defaultdict(list)
    with scratch() as directory:
        async with (
            crew(directory, _NAMES, _LEASE) as (runners, running),
            open_channel(running.session) as channel,
        ):
            stub = SessionServiceStub(channel)
            for number in range(effort.rounds):
                for metric, seconds in (await _fail_over(stub, runners, f"s{number}")).items():
                    seen[metric].append(seconds)
    report = Report()
    for metric, values in seen.items():
        report.add(metric, "s", values, [_LEASE], against="the length of a lease")
    return report


async def _fail_over(stub: SessionServiceAsyncStub, runners: Crew, session_id: str) -> dict[str, float]:
    async with watched(stub, session_id, "demo") as talk:
        await talk.start("lost", "sleep 600")
        await talk.told("lost", "agent_message")
        session = (await stub.GetSession(session_pb2.GetSessionRequest(session_id=session_id))).session
        killed = time.monotonic()
        name = await runners.kill(session.lease.holder)
        ended = await talk.told("lost", "turn_ended")
        await talk.start("next", "say here")
        began = await talk.told("next", "turn_started")
        await talk.told("next", "turn_ended")
        await runners.start(name)
    return {"failover_to_lost": ended - killed, "failover_to_next_turn": began - killed}
