"""Service processes: how they start, refuse to, fail and stop. Real processes, real signals."""

from __future__ import annotations

import asyncio
import signal
import socket
from pathlib import Path

import grpc
import pytest
from google.protobuf.wrappers_pb2 import StringValue

from services.cli.postgres.embedded import EmbeddedPostgres
from services.common.channels import open_channel
from services.common.failpoints import FailpointSyntaxError, parse
from services.common.migrations import migrate
from tests.common.echo import Caller
from tests.common.processes import harbour


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_stops_in_order(number: signal.Signals) -> None:
    async with harbour("--drain-time=0.1") as process:
        await process.logged("ready")
        process.signal(number)
        assert await process.ended() == 0
        assert process.events[-5:] == ["stopping", "drain begun", "drain ended", "loop ended", "stopped"]
        assert (await process.logged("drain begun"))["stopping"] is False
    # JSON only: gRPC's core adds no lines of its own.
    assert process.noise == []
    assert {line["service"] for line in process.lines} == {"harbour"}
    assert all({"level", "timestamp", "logger"} <= line.keys() for line in process.lines)


async def test_a_second_signal_cuts_the_drain_short() -> None:
    async with harbour("--drain-time=600") as process:
        await process.logged("ready")
        process.signal(signal.SIGTERM)
        await process.logged("drain begun")
        process.signal(signal.SIGTERM)
        assert await process.ended() == 0
        assert process.events[-3:] == ["drain begun", "loop ended", "stopped"]


async def test_a_failing_drain_does_not_keep_the_process() -> None:
    async with harbour(MOORAGE_FAILPOINTS="harbour.drain=error") as process:
        await process.logged("ready")
        process.signal(signal.SIGTERM)
        assert await process.ended() == 0
        assert "FailpointError" in (await process.logged("drain failed"))["exception"]


async def test_calls_are_served_while_draining_and_health_says_so() -> None:
    async with harbour("--drain-time=600") as process:
        await process.logged("ready")
        async with open_channel(process.endpoint) as channel:
            caller = Caller(channel)
            assert await caller.call("Unary", "ok") == "ok"
            process.signal(signal.SIGTERM)
            await process.logged("drain begun")
            assert await caller.call("Unary", "ok") == "ok"


async def test_a_call_in_progress_is_ended_after_its_grace() -> None:
    async with harbour("--shutdown-grace=0.1") as process:
        await process.logged("ready")
        async with open_channel(process.endpoint) as channel:
            call = Caller(channel).start("Download")(StringValue(value="hang"))
            assert (await call.read()).value == "first"
            process.signal(signal.SIGTERM)
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await call.read()
            assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
        assert await process.ended() == 0


async def test_the_error_of_a_loop_ends_the_process() -> None:
    async with harbour(MOORAGE_FAILPOINTS="harbour.loop=error") as process:
        assert await process.ended() == 70
        assert process.events[-1] == "ended by an unexpected error"
        assert "FailpointError: harbour.loop" in process.lines[-1]["exception"]


async def test_a_port_in_use_is_one_line() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        async with harbour(f"--listen={address}") as process:
            assert await process.ended() == 1
    assert process.events == [f"refused to start: cannot listen on {address}: Address already in use"]
    assert "exception" not in process.lines[-1]
    assert process.noise == []


async def test_a_bad_setting_is_one_line_and_code_2() -> None:
    async with harbour("--log-level=loud") as process:
        assert await process.ended() == 2
        assert len(process.noise) == 1


async def test_a_wrong_schema_is_refused(empty_database_url: str) -> None:
    async with harbour(MOORAGE_DATABASE_URL=empty_database_url) as process:
        assert await process.ended() == 1
    assert process.events[-1].startswith("refused to start: the schema owner is not in the database")
    assert "exception" not in process.lines[-1]


async def test_a_database_that_is_down_at_the_start_is_waited_for(tmp_path: Path) -> None:
    postgres = EmbeddedPostgres(tmp_path, durable=False)
    url = postgres.start()
    await migrate(url, "owner")
    postgres.stop()
    async with harbour(MOORAGE_DATABASE_URL=url, MOORAGE_READINESS_INTERVAL="0.1") as process:
        line = await process.logged("not ready")
        assert line["dependency"] == "database"
        assert "Connect call failed" in line["cause"]
        postgres.start()
        await process.logged("ready")
        process.signal(signal.SIGTERM)
        assert await process.ended() == 0
    assert not [line for line in process.lines if "exception" in line]
    assert process.events.count("not ready") == 1
    postgres.remove()


async def test_a_wrong_schema_found_later_is_refused_too(tmp_path: Path) -> None:
    postgres = EmbeddedPostgres(tmp_path, durable=False)
    url = postgres.start()
    postgres.stop()
    async with harbour(MOORAGE_DATABASE_URL=url) as process:
        await process.logged("not ready")
        postgres.start()
        assert await process.ended() == 1
    assert process.events[-1].startswith("refused to start: the schema owner is not in the database")
    assert "loop ended" in process.events
    postgres.remove()


async def test_a_failpoint_kills(tmp_path: Path) -> None:
    async with harbour(MOORAGE_FAILPOINTS="harbour.loop=kill") as process:
        assert await process.ended() == -signal.SIGKILL
        assert "loop ended" not in process.events


async def test_a_failpoint_pauses_until_released(tmp_path: Path) -> None:
    release = tmp_path / "go"
    async with harbour(MOORAGE_FAILPOINTS=f"harbour.drain=pause:{release}") as process:
        await process.logged("ready")
        process.signal(signal.SIGTERM)
        await process.logged("drain begun")
        while not (tmp_path / "go.reached").exists():
            await asyncio.sleep(0.01)
        assert "drain ended" not in process.events
        release.touch()
        assert await process.ended() == 0
        assert "drain ended" in process.events


@pytest.mark.parametrize("text", ["a", "a=", "a=explode", "a=pause:relative"])
def test_a_failpoint_without_an_action_is_refused(text: str) -> None:
    with pytest.raises(FailpointSyntaxError, match="MOORAGE_FAILPOINTS"):
        parse(text)


def test_failpoints_are_read_by_name() -> None:
    assert parse(" a=kill; b=pause:/tmp/x ;") == {"a": "kill", "b": "pause:/tmp/x"}
