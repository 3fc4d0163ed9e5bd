"""Many callers at the same time: no process of a lower token outlives a claim (F6)."""

from __future__ import annotations

import asyncio
import os
import random
from functools import partial
from pathlib import Path

import pytest
from moorage.common.v1.grant_pb2 import Grant

from services.common.errors import MoorageError
from tests.conditions import eventually
from tests.workspace.instances import Client, Holder, Machine
from tests.workspace.processes import is_alive
from tests.workspace.streams import Streaming

ROUNDS = int(os.environ.get("RACE_ROUNDS", "15"))


class Starts:
    """Commands that note their process ids in a file named after their token."""

    def __init__(self, client: Client, directory: Path) -> None:
        self._client = client
        self._directory = directory
        self._streams: list[Streaming] = []

    async def start(self, grant: Grant, token: int, after: float) -> None:
        await asyncio.sleep(after)
        script = f"echo $$ >> t{token}; setsid sh -c 'echo $$ >> t{token}; exec sleep 600' & exec sleep 600"
        self._streams.append(self._client.exec(grant, "sh", "-c", script))
        try:
            await self._streams[-1].__aenter__()
        except MoorageError as error:
            if error.reason_name not in ("STALE_OWNER", "CANCELLED"):
                raise

    def alive(self, token: int) -> list[int]:
        path = self._directory / f"t{token}"
        pids = [int(line) for line in path.read_text().split()] if path.exists() else []
        return [pid for pid in pids if is_alive(pid)]

    async def cut(self) -> None:
        for stream in self._streams:
            await stream.__aexit__()


@pytest.fixture
async def starts(client: Client, machine: Machine) -> Starts:
    """In the workspace of session s1."""
    await client.adopt(machine.supplied())
    return Starts(client, machine.supplied())


async def test_starts_against_claims_of_higher_tokens(client: Client, holder: Holder, starts: Starts) -> None:
    dice = random.Random(7)
    grant = await holder.acquire()
    for token in range(1, ROUNDS + 1):
        higher = await holder.next(token)
        async with asyncio.TaskGroup() as group:
            for _ in range(4):
                group.create_task(starts.start(grant, token, dice.uniform(0, 0.03)))
            await asyncio.sleep(dice.uniform(0, 0.03))
            await client.claim(higher)
            assert not starts.alive(token), "alive when the claim returned"
        assert not starts.alive(token), "started after the claim"
        grant = higher
    await starts.cut()


async def test_starts_of_two_tokens_at_the_same_time(client: Client, holder: Holder, starts: Starts) -> None:
    dice = random.Random(11)
    grant = await holder.acquire()
    for token in range(1, ROUNDS + 1):
        higher = await holder.next(token)
        async with asyncio.TaskGroup() as group:
            for _ in range(3):
                group.create_task(starts.start(grant, token, dice.uniform(0, 0.02)))
                group.create_task(starts.start(higher, token + 1, dice.uniform(0, 0.02)))
        assert not starts.alive(token)
        grant = higher
    await starts.cut()


async def test_claims_that_are_cut_leave_the_fence_whole(
    client: Client, holder: Holder, starts: Starts
) -> None:
    """A claim whose caller goes away in the middle has either not happened or happened wholly."""
    dice = random.Random(13)
    grant = await holder.acquire()
    for token in range(1, ROUNDS + 1):
        higher = await holder.next(token)
        await starts.start(grant, token, 0)
        claiming = asyncio.create_task(client.claim(higher))
        await asyncio.sleep(dice.uniform(0, 0.01))
        claiming.cancel()
        await asyncio.wait({claiming})
        if (await client.get()).token > token:
            # The row has it, so the memory has: what is lower ends though nobody waits for it.
            await eventually(partial(is_empty, starts, token))
        await client.claim(higher)
        grant = higher
    await starts.cut()


def is_empty(starts: Starts, token: int) -> bool:
    return not starts.alive(token)


async def test_deletion_against_starts(client: Client, holder: Holder, machine: Machine) -> None:
    dice = random.Random(17)
    for number in range(ROUNDS):
        workspace_id, session_id = f"x{number}", f"s{number}"
        made = await client.make(workspace_id, session_id=session_id)
        grant = await holder.acquire(session_id)
        pids = machine.directory / f"pids{number}"
        script = f"echo $$ >> {pids}; while :; do echo x > file; done"
        streams = [client.exec(grant, "sh", "-c", script, workspace_id=workspace_id) for _ in range(3)]

        async def start(stream: Streaming, after: float) -> None:
            await asyncio.sleep(after)
            try:
                await stream.__aenter__()
            except MoorageError as error:
                if error.reason_name not in ("WORKSPACE_NOT_READY", "INVALID_FIELD"):
                    raise

        async with asyncio.TaskGroup() as group:
            for stream in streams:
                group.create_task(start(stream, dice.uniform(0, 0.03)))
            await asyncio.sleep(dice.uniform(0, 0.03))
            await client.delete(workspace_id)
        await client.settled(workspace_id)
        assert not any(is_alive(int(pid)) for pid in (pids.read_text().split() if pids.exists() else []))
        assert not Path(made.root).exists()
        for stream in streams:
            await stream.__aexit__()
