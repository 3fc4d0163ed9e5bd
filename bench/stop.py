"""Stop: from the request to the agent, to the stored end, and to what the warm agent says next.

Each cycle starts a turn in one session, stops it while its agent waits, and starts the next one;
bare unary calls are made in between. A share of all cycles of the run is compared with the median
of all bare calls.
"""

from __future__ import annotations

import time

from bench.harness.bare import bare_call
from bench.harness.places import scratch
from bench.harness.results import Effort, Report
from bench.harness.shares import Shares
from bench.harness.talking import Cancels, Talk, talking

_WARM_UP = 10
# For each second of work.
_CYCLES = 20
_CALLS = 5


async def measure(effort: Effort) -> Report:
    """The times of Stops."""
    shares = Shares()
    cycles = max(20, round(effort.rounds * effort.seconds * _CYCLES))
    with scratch() as directory:
        async with bare_call() as call, talking(directory) as (talk, cancels):
            for number in range(_WARM_UP + cycles):
                times = await _cycle(talk, cancels, number)
                calls = [await call() for _ in range(_CALLS)]
                if number >= _WARM_UP:
                    shares.add(times, calls)
    return shares.report()


async def _cycle(talk: Talk, cancels: Cancels, number: int) -> dict[str, float]:
    turn_id, next_id = f"t{number}", f"n{number}"
    await talk.start(turn_id, "sleep 600")
    await talk.told(turn_id, "agent_message")
    began = time.monotonic()
    await talk.stop(turn_id)
    answered = time.monotonic()
    reached, settled = await cancels.next(), await talk.told(turn_id, "turn_ended")
    again = time.monotonic()
    await talk.start(next_id, "say here")
    first = await talk.told(next_id, "user_message")
    spoke = await talk.told(next_id, "agent_message")
    await talk.told(next_id, "turn_ended")
    return {
        "stop_answered": answered - began,
        "stop_to_agent": reached - began,
        "stop_to_settled": settled - began,
        "warm_start_to_first_record": first - again,
        "warm_start_to_agent_record": spoke - again,
        "stop_to_next_agent_record": spoke - began,
    }
