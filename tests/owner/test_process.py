"""The process as operators run it: its readiness follows the database, its exit code tells how it ended."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Iterator

import grpc
import pytest
from moorage.owner.v1 import lease_pb2, lease_pb2_grpc

from services.cli.postgres.embedded import EmbeddedPostgres
from services.common.channels import open_channel
from services.common.errors import MoorageError
from services.common.migrations import migrate
from tests.databases import execute
from tests.owner.processes import NOT_SERVING, SERVING, owner_process
from tests.owner.replicas import Holder
from tests.servers import own_server

LISTEN = ("--listen", "127.0.0.1:0")
SERVICE = "moorage.owner.v1.LeaseService"


@pytest.fixture
def own_postgres(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedPostgres]:
    """A server that this test may stop."""
    with own_server(tmp_path_factory) as server:
        yield server


async def test_readiness_follows_the_database(own_postgres: EmbeddedPostgres) -> None:
    url = own_postgres.url
    await migrate(url, "owner")
    own_postgres.stop()
    async with owner_process(*LISTEN, "--insecure", "--database-url", url) as owner:
        endpoint = await owner.until_serving()
        async with open_channel(endpoint) as channel:
            await owner.until_health(SERVING, "live")
            for name in ("", "ready", SERVICE):
                await owner.until_health(NOT_SERVING, name)
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await lease_pb2_grpc.LeaseServiceStub(channel).GetLease(
                    lease_pb2.GetLeaseRequest(resource="a")
                )
            assert caught.value.code() == grpc.StatusCode.UNAVAILABLE
            own_postgres.start()
            for name in ("", "ready", SERVICE):
                await owner.until_health(SERVING, name)
            alice = Holder(channel, "alice/1")
            assert (await alice.acquire("a")).lease.token == 1
            own_postgres.stop()
            await owner.until_health(NOT_SERVING)
            await owner.until_health(SERVING, "live")
            own_postgres.start()
            await owner.until_health(SERVING)
            assert [result.state for result in await alice.renew(("a", 1))] == [
                lease_pb2.RENEWAL_STATE_RENEWED
            ]
        owner.signal(signal.SIGTERM)
        assert await owner.ended() == 0
    # Each change is said once, without a stack.
    events = [line["event"] for line in owner.lines]
    assert events.count("not ready") == 2
    assert events.count("ready") == 2
    assert not any("exception" in line or "text" in line for line in owner.lines)


async def test_a_signal_ends_it_in_order(database_url: str) -> None:
    for number in (signal.SIGTERM, signal.SIGINT):
        async with owner_process(*LISTEN, "--database-url", database_url) as owner:
            await owner.until_serving()
            await owner.until_health(SERVING)
            owner.signal(number)
            assert await owner.ended() == 0


async def test_a_database_without_the_schema_is_refused(empty_database_url: str) -> None:
    async with owner_process(*LISTEN, "--database-url", empty_database_url) as owner:
        assert await owner.ended() == 1
        assert owner.lines[-1]["level"] == "critical"
        assert "run `moorage migrate`" in owner.lines[-1]["event"]
        assert not any("exception" in line for line in owner.lines)


async def test_a_schema_of_a_later_build_is_refused(database_url: str) -> None:
    await execute(database_url, "UPDATE owner.alembic_version SET version_num = '9999'")
    async with owner_process(*LISTEN, MOORAGE_DATABASE_URL=database_url) as owner:
        assert await owner.ended() == 1
        assert "9999" in owner.lines[-1]["event"]


@pytest.mark.parametrize(
    ("flags", "named"),
    [
        (["--database-url", "mysql://x"], "--database-url"),
        (["--database-url", "postgresql://x/y", "--listen", "0.0.0.0:0"], "--insecure"),
        (["--database-url", "postgresql://x/y", "--min-ttl", "0"], "--min-ttl"),
        ([], "MOORAGE_DATABASE_URL"),
    ],
)
async def test_bad_settings_end_it_with_one_line(flags: list[str], named: str) -> None:
    async with owner_process(*flags) as owner:
        assert await owner.ended() == 2
        [line] = owner.lines
        assert named in line["text"]


async def test_a_port_in_use_is_refused(database_url: str) -> None:
    async with owner_process(*LISTEN, "--database-url", database_url) as first:
        endpoint = await first.until_serving()
        async with owner_process("--listen", endpoint, "--database-url", database_url) as second:
            assert await second.ended() == 1
            assert endpoint in second.lines[-1]["event"]


async def test_a_crash_after_the_commit_loses_no_lease(database_url: str) -> None:
    """The answer is lost with the replica; another one finds the lease by the request id."""
    failpoints = {"MOORAGE_FAILPOINTS": "owner.acquire_lease.after_commit=kill"}
    async with (
        owner_process(*LISTEN, "--database-url", database_url, **failpoints) as dying,
        owner_process(*LISTEN, "--database-url", database_url) as other,
    ):
        for process in (dying, other):
            await process.until_serving()
            await process.until_health(SERVING)
        async with open_channel(dying.endpoint) as channel:
            acquiring = asyncio.ensure_future(Holder(channel, "alice/1").acquire("a", request_id="one"))
            assert await dying.ended() == -signal.SIGKILL
            with pytest.raises(MoorageError):
                await acquiring
        async with open_channel(other.endpoint) as channel:
            lease = (await Holder(channel, "alice/1").acquire("a", request_id="one")).lease
            assert (lease.token, lease.live) == (1, True)
