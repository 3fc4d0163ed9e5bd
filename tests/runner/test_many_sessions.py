"""Many sessions on one runner at the same time."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from moorage.common.v1 import turn_pb2

from tests.runner.parts import Stack
from tests.runner.talks import Talks, kinds_of

SESSIONS = 50
NUMBERS = list(range(1, 201))


@pytest.mark.timeout(180)
async def test_fifty_sessions_count_at_once_and_every_transcript_equals_its_agents_log(
    stack: Stack, talks: Talks, root: Path
) -> None:
    await stack.add_runner()
    names = [f"s{number}" for number in range(SESSIONS)]
    await asyncio.gather(*(talks.create(name) for name in names))
    await asyncio.gather(*(talks.start(name, "t", f"count to 200 into {name}.log") for name in names))
    turns = await asyncio.gather(*(talks.ended(name, "t", within=150) for name in names))
    assert [turn.state for turn in turns] == [turn_pb2.TURN_STATE_COMPLETED] * SESSIONS
    for name in names:
        logged = [int(line) for line in (root / f"{name}.log").read_text().splitlines()]
        records = await talks.records(name)
        assert logged == NUMBERS
        assert [int(line) for line in (await talks.said(name, "t")).splitlines()] == logged
        assert [record.turn_seq for record in records[2:-1]] == list(range(1, len(records) - 2))
        assert kinds_of(records)[-1] == "turn_ended"


@pytest.mark.timeout(180)
async def test_fifty_sessions_with_two_hundred_records_each_share_one_stream(
    stack: Stack, talks: Talks
) -> None:
    await stack.add_runner()
    names = [f"s{number}" for number in range(SESSIONS)]
    await asyncio.gather(*(talks.create(name) for name in names))
    prompt = "\n".join(f"say {number}\nthink {number}" for number in range(100))
    await asyncio.gather(*(talks.start(name, "t", prompt) for name in names))
    await asyncio.gather(*(talks.ended(name, "t", within=150) for name in names))
    for name in names:
        kinds = kinds_of(await talks.records(name))
        assert kinds[2:-1] == ["agent_message", "thought"] * 100
