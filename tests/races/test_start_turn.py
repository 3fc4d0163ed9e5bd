"""Two session processes and two client processes: of turns started in the same instant one is admitted (T1)."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
import time
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from services.common.channels import open_channel
from tests.session.clients import Client
from tests.session.places import Places
from tests.session.processes import session_process

RACES = int(os.environ.get("RACES", "60"))
CLIENT = Path(__file__).with_name("start_turn_client.py")
# Long enough for a line to reach its process.
_HEAD_START = 0.02


@contextlib.asynccontextmanager
async def client_process(endpoint: str) -> AsyncIterator[Process]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, str(CLIENT), endpoint, stdin=PIPE, stdout=PIPE
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def ask(process: Process, **request: object) -> dict[str, Any]:
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(json.dumps(request).encode() + b"\n")
    await process.stdin.drain()
    answer: dict[str, Any] = json.loads(await process.stdout.readline())
    return answer


async def race(processes: list[Process], session_id: str) -> list[dict[str, Any]]:
    at = time.monotonic() + _HEAD_START
    asked = [
        ask(process, session_id=session_id, turn_id=f"turn_of_{number}", at=at)
        for number, process in enumerate(processes)
    ]
    return list(await asyncio.gather(*asked))


@pytest.mark.timeout(60 + RACES)
async def test_one_of_two_is_admitted_and_the_other_is_told_which(places: Places) -> None:
    names = [f"s{number}" for number in range(RACES)]
    async with contextlib.AsyncExitStack() as stack:
        window = ("--dispatch-window", "3600")
        replicas = [await stack.enter_async_context(session_process(places, *window)) for _ in range(2)]
        channel = await stack.enter_async_context(open_channel(replicas[0]))
        await asyncio.gather(*(Client(channel).create(session_id=name) for name in names))
        clients = [await stack.enter_async_context(client_process(replica)) for replica in replicas]
        races = [await race(clients, name) for name in names]

    for name, answers in zip(names, races, strict=True):
        [winner] = [answer["turn_id"] for answer in answers if "turn_id" in answer]
        [refusal] = [answer for answer in answers if "turn_id" not in answer]
        assert refusal["reason"] == "TURN_IN_PROGRESS"
        assert refusal["metadata"] == {
            "session_id": name,
            "turn_id": winner,
            "state": "ADMITTED",
            "phase": "WAITING_FOR_RUNNER",
        }
    overlapping = sum(map(overlap, races))
    assert overlapping > RACES / 2, f"only {overlapping} of {RACES} were races"
    assert await stored(places.database_url) == dict.fromkeys(names, (1, 1, 1))


def overlap(answers: list[dict[str, Any]]) -> bool:
    """Whether each was sent before the other was answered."""
    last_sent: float = max(answer["sent"] for answer in answers)
    first_answered: float = min(answer["answered"] for answer in answers)
    return last_sent < first_answered


async def stored(database_url: str) -> dict[str, tuple[int, int, int]]:
    """Turns, records and head_seq of each session."""
    connection = await asyncpg.connect(database_url)
    rows = await connection.fetch(
        """
        SELECT session_id, head_seq,
               (SELECT count(*) FROM session.turns AS turn
                WHERE (turn.project, turn.session_id) = (session.project, session.session_id)) AS turns,
               (SELECT count(*) FROM session.records AS record
                WHERE (record.project, record.session_id) = (session.project, session.session_id)) AS records
        FROM session.sessions AS session
        """
    )
    await connection.close()
    return {row["session_id"]: (row["turns"], row["records"], row["head_seq"]) for row in rows}
