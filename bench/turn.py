"""Turns: from StartTurn to the first record at a watcher, to the agent's first words, to the stored end.

Each cycle runs a short turn in one session, whose agent is warm; bare unary calls are made in
between. A share of all cycles of the run is compared with the median of all bare calls.
"""

from __future__ import annotations

import time

from bench.harness.bare import bare_call
from bench.harness.places import scratch
from bench.harness.results import Effort, Report
from bench.harness.shares import Shares
from bench.harness.talking import Talk, talking

_WARM_UP = 10
# For each second of work.
_CYCLES = 20
_CALLS = 5


async def measure(effort: Effort) -> Report:
    """The times of turns."""
    shares = Shares()
    cycles = max(20, round(effort.rounds * effort.seconds * _CYCLES))
    with scratch() as directory:
        async with bare_call() as call, talking(directory) as (talk, _):
            for number in range(_WARM_UP + cycles):
                times = await _cycle(talk, f"t{number}")
                calls = [await call() for _ in range(_CALLS)]
                if number >= _WARM_UP:
                    shares.add(times, calls)
    return shares.report()


async def _cycle(talk: Talk, turn_id: str) -> dict[str, float]:
    began = time.monotonic()
    await talk.start(turn_id, "say here")
    answered = time.monotonic()
    first = await talk.told(turn_id, "user_message")
    spoke = await talk.told(turn_id, "agent_message")
    ended = await talk.told(turn_id, "turn_ended")
    return {
        "start_answered": answered - began,
        "start_to_first_record": first - began,
        "warm_start_to_agent_record": spoke - began,
        "warm_turn": ended - began,
    }
