"""Watching over gRPC, as clients do it, on whole replicas with real neighbours."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import AsyncIterator, Iterator
from typing import TYPE_CHECKING

import grpc
import pytest
from moorage.session.v1 import session_pb2
from moorage.session.v1.session_pb2_grpc import SessionServiceStub

from services.cli.postgres.embedded import EmbeddedPostgres
from services.common.channels import open_channel
from services.common.database import Database
from services.common.errors import MoorageError, NotFound, OutOfRange, Unavailable
from services.common.migrations import migrate
from services.common.settings import DatabaseSettings
from services.common.status import from_rpc_error
from services.session.records import Heartbeat
from tests.conditions import eventually
from tests.servers import own_server
from tests.session.clients import Client
from tests.session.desks import system_desk
from tests.session.holders import Holder
from tests.session.places import Places, running_session
from tests.session.watches import Watcher, running

if TYPE_CHECKING:
    from moorage.session.v1.session_pb2_grpc import SessionServiceAsyncStub


@contextlib.asynccontextmanager
async def watch(
    channel: grpc.aio.Channel, session_id: str, after_seq: int = 0
) -> AsyncIterator[AsyncIterator[session_pb2.WatchSessionResponse]]:
    """A watch; refusals are raised as error kinds."""
    stub: SessionServiceAsyncStub = SessionServiceStub(channel)
    call = stub.WatchSession(session_pb2.WatchSessionRequest(session_id=session_id, after_seq=after_seq))

    async def responses() -> AsyncIterator[session_pb2.WatchSessionResponse]:
        try:
            async for response in call:
                yield response
        except grpc.aio.AioRpcError as error:
            raise from_rpc_error(error) from error

    try:
        yield responses()
    finally:
        call.cancel()


async def seqs(responses: AsyncIterator[session_pb2.WatchSessionResponse], count: int) -> list[int]:
    """The seqs of the next records."""
    found: list[int] = []
    async for response in responses:
        if response.WhichOneof("event") == "record":
            found.append(response.record.seq)
        if len(found) == count:
            break
    return found


async def test_what_is_written_at_one_replica_is_watched_at_another(places: Places) -> None:
    async with (
        running_session(places) as here,
        running_session(places) as there,
        open_channel(here.endpoint) as channel,
        open_channel(there.endpoint) as other,
        open_channel(here.journal_endpoint) as journal,
        open_channel(places.owner_address) as owner,
    ):
        client = Client(channel)
        session = await client.create()
        async with watch(other, session.session_id) as responses:
            turn = await client.start(session.session_id)
            assert await seqs(responses, 1) == [1]
            holder = await Holder.acquire(owner, journal, session.session_id)
            await holder.begin(turn.turn_id)
            await holder.say(turn.turn_id, "one", "two", "three")
            await holder.complete(turn.turn_id, 3)
            assert await seqs(responses, 5) == [2, 3, 4, 5, 6]
        async with watch(channel, session.session_id, 5) as responses:
            assert await seqs(responses, 1) == [6]


async def test_refusals_come_with_what_the_client_needs(client: Client, channel: grpc.aio.Channel) -> None:
    session = await client.create()
    async with watch(channel, "unknown") as responses:
        with pytest.raises(NotFound) as refusal:
            await anext(responses)
    assert refusal.value.reason_name == "SESSION_NOT_FOUND"
    async with watch(channel, session.session_id, 7) as responses:
        with pytest.raises(OutOfRange) as beyond:
            await anext(responses)
    assert (beyond.value.reason_name, beyond.value.metadata["head_seq"]) == ("CURSOR_OUT_OF_RANGE", "0")
    async with watch(channel, session.session_id, -7) as responses:
        with pytest.raises(MoorageError) as negative:
            await anext(responses)
    assert [violation.field for violation in negative.value.violations] == ["after_seq"]


async def test_a_silent_watch_shows_signs_of_life(places: Places) -> None:
    async with (
        running_session(places, watch_heartbeat=0.2) as replica,
        open_channel(replica.endpoint) as channel,
    ):
        client = Client(channel)
        session = await client.create()
        await client.start(session.session_id)
        async with watch(channel, session.session_id, 1) as responses:
            first, second = [await anext(responses) for _ in range(2)]
        assert first.heartbeat.head_seq == second.heartbeat.head_seq == 1
        apart = second.heartbeat.time.ToNanoseconds() - first.heartbeat.time.ToNanoseconds()
        assert apart >= 0.19e9


async def test_a_replica_that_stops_ends_its_watches_with_the_last_seq(places: Places) -> None:
    async with contextlib.AsyncExitStack() as stack:
        serving = running_session(places)
        replica = await serving.__aenter__()
        channel = await stack.enter_async_context(open_channel(replica.endpoint))
        client = Client(channel)
        session = await client.create()
        turn = client.run(session.session_id)
        admitted = await anext(turn)
        await anext(turn)
        session_watch = await stack.enter_async_context(watch(channel, session.session_id))
        assert await seqs(session_watch, 1) == [1]
        stopping = asyncio.create_task(serving.__aexit__(None, None, None))
        for responses in (turn, session_watch):
            with pytest.raises(Unavailable) as end:
                await anext(responses)
            assert (end.value.reason_name, end.value.metadata) == ("SHUTTING_DOWN", {"last_seq": "1"})
        await stopping
    assert admitted.admitted.session_id == session.session_id


async def test_a_client_that_does_not_read_holds_up_nobody(
    places: Places, client: Client, channel: grpc.aio.Channel
) -> None:
    session = await client.create()
    async with running_session(places) as other, open_channel(other.journal_endpoint) as journal:
        turn = await client.start(session.session_id)
        async with (
            open_channel(places.owner_address) as owner,
            watch(channel, session.session_id) as slow,
            watch(channel, session.session_id) as quick,
        ):
            holder = await Holder.acquire(owner, journal, session.session_id)
            await holder.begin(turn.turn_id)
            texts = [f"{number} " + "x" * 15_000 for number in range(60)]
            for start in range(0, 60, 10):
                await holder.say(turn.turn_id, *texts[: start + 10])
            await holder.complete(turn.turn_id, 60)
            assert await seqs(quick, 63) == list(range(1, 64))
            assert await seqs(slow, 63) == list(range(1, 64))


@pytest.fixture
def own_postgres(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedPostgres]:
    """A server that this test may restart."""
    with own_server(tmp_path_factory) as server:
        yield server


async def test_a_watch_outlives_an_outage_of_the_database(own_postgres: EmbeddedPostgres) -> None:
    await migrate(own_postgres.url, "session")
    settings = DatabaseSettings(database_url=own_postgres.url, database_acquire_timeout=1.0)
    async with Database(settings) as database, system_desk(database).serving() as desk:
        holder = await desk.begun()
        async with (
            running(database, poll=0.1, heartbeat=0.1) as watching,
            Watcher(watching.watch_session("default", "s1", 0)) as watcher,
        ):
            await eventually(lambda: watcher.seqs == [1, 2])
            own_postgres.stop()
            before = heartbeats(watcher)
            await eventually(lambda: heartbeats(watcher) > before)
            own_postgres.start()
            for number in itertools.count(1):
                with contextlib.suppress(grpc.aio.AioRpcError):
                    await holder.append(1)
                    break
                assert number < 100
            await eventually(lambda: watcher.seqs == [1, 2, 3])


def heartbeats(watcher: Watcher) -> int:
    return sum(isinstance(event, Heartbeat) for event in watcher.seen)
