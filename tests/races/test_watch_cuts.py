"""Watches at one replica of what is written through another, cut at random and resumed (R5)."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
from collections.abc import AsyncIterable, Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest
from moorage.common.v1 import record_pb2
from moorage.session.v1 import session_pb2
from moorage.session.v1.session_pb2_grpc import SessionServiceStub

from services.common.channels import open_channel
from tests.conditions import eventually
from tests.session.clients import Client, text
from tests.session.holders import Holder
from tests.session.places import Places, running_session

if TYPE_CHECKING:
    from moorage.session.v1.session_pb2_grpc import SessionServiceAsyncStub

CUTS = int(os.environ.get("CUTS", "40"))
HEARTBEAT = 1.0


class Watcher:
    """Somebody who watches the turn t1 of s1, on one stream after the other, and keeps what it is given."""

    def __init__(self, endpoint: str) -> None:
        self._endpoint = endpoint
        self.records: list[record_pb2.Record] = []
        self.ended: session_pb2.Turn | None = None
        self.slowest = 0.0
        self.streams = 0
        self.cut = asyncio.Event()

    @property
    def seqs(self) -> list[int]:
        return [record.seq for record in self.records]

    async def watch_in_pieces(self, seed: int) -> None:
        """Watch on streams that are cut after some records, or after some time; then on one to the end."""
        choice = random.Random(seed)
        for _ in range(CUTS):
            most = len(self.records) + choice.choice([0, 1, 1, 2, 5, 20])
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(choice.choice([0.02, 0.1, 2 * HEARTBEAT])):
                    await self.watch(lambda most=most: len(self.records) >= most)  # type: ignore[misc]
        self.cut.set()
        await self.watch(lambda: False)

    async def watch(self, is_enough: Callable[[], bool]) -> None:
        """One stream, on a connection of its own."""
        self.streams += 1
        async with open_channel(self._endpoint) as channel:
            async for response in self._open(SessionServiceStub(channel), self.seqs[-1] if self.seqs else 0):
                self._take(response)
                if is_enough() or self._is_over():
                    return

    def _open(self, stub: SessionServiceAsyncStub, after_seq: int) -> AsyncIterable[Any]:
        request = session_pb2.WatchSessionRequest(session_id="s1", after_seq=after_seq)
        return stub.WatchSession(request)

    def _take(self, response: Any) -> None:
        if response.HasField("record"):
            self.records.append(response.record)
            took = datetime.now(UTC) - response.record.create_time.ToDatetime(UTC)
            self.slowest = max(self.slowest, took.total_seconds())

    def _is_over(self) -> bool:
        return bool(self.records) and self.records[-1].body.HasField("turn_ended")


class Runner(Watcher):
    """The same for RunTurn, which the same request id attaches to the same turn."""

    def _open(self, stub: SessionServiceAsyncStub, after_seq: int) -> AsyncIterable[Any]:
        return stub.RunTurn(
            session_pb2.RunTurnRequest(
                session_id="s1",
                turn_id="t1",
                prompt=[text("go")],
                request_id="r1",
                after_seq=after_seq,
            )
        )

    def _take(self, response: Any) -> None:
        super()._take(response)
        if response.HasField("ended"):
            self.ended = response.ended

    def _is_over(self) -> bool:
        return self.ended is not None


async def write_until(holder: Holder, *cuts: asyncio.Event) -> int:
    """Write records with pauses of all kinds; how many."""
    choice, count = random.Random(7), 0
    while not all(cut.is_set() for cut in cuts):
        texts = [f"text {count + number}" for number in range(choice.choice([1, 1, 1, 3, 30]))]
        await holder.say("t1", *texts, first=count + 1)
        count += len(texts)
        await asyncio.sleep(choice.choice([0.0, 0.005, 0.03]))
    return count


async def stored(client: Client) -> list[record_pb2.Record]:
    """The transcript as it is listed."""
    records: list[record_pb2.Record] = []
    while True:
        after_seq = records[-1].seq if records else 0
        page = await client.list_records("s1", after_seq=after_seq, page_size=1000)
        if not page.records:
            return records
        records.extend(page.records)


@pytest.mark.timeout(60 + 2 * CUTS)
async def test_a_watch_that_is_cut_sees_what_an_uncut_one_sees_and_the_end(places: Places) -> None:
    async with (
        running_session(places, watch_heartbeat=HEARTBEAT) as here,
        running_session(places, watch_heartbeat=HEARTBEAT) as there,
        open_channel(there.endpoint) as channel,
        open_channel(there.journal_endpoint) as journal,
        open_channel(places.owner_address) as owner,
    ):
        client = Client(channel)
        await client.create(session_id="s1")
        uncut, cut, run = Watcher(here.endpoint), Watcher(here.endpoint), Runner(here.endpoint)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(uncut.watch(lambda: False))
            tasks.create_task(run.watch_in_pieces(1))
            await eventually(lambda: uncut.seqs == [1])
            tasks.create_task(cut.watch_in_pieces(2))
            holder = await Holder.acquire(owner, journal, "s1")
            await holder.begin("t1")
            ended = await holder.complete("t1", await write_until(holder, cut.cut, run.cut))
        records = await stored(client)
    assert [record.seq for record in records] == list(range(1, ended.last_seq + 1))
    for watcher in (uncut, cut, run):
        assert watcher.seqs == [record.seq for record in records]
        assert watcher.records == records
    assert run.ended == ended
    assert (cut.streams, run.streams, uncut.streams) == (CUTS + 1, CUTS + 1, 1)
    assert uncut.slowest < HEARTBEAT
