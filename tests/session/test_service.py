"""The service as a process: what it serves, when it is ready, and when it refuses to start."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from asyncio.subprocess import PIPE
from collections.abc import Mapping
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2
from grpc_health.v1.health_pb2_grpc import HealthStub
from moorage.common.v1.errors_pb2 import ErrorReason
from moorage.session.v1 import journal_pb2, session_pb2

from services.common.channels import open_channel
from services.common.errors import Unavailable
from services.session.servicers.journal import JournalServicer
from services.session.servicers.service import SessionServicer
from tests.conditions import eventually
from tests.databases import execute, fetch_value, in_database
from tests.session.clients import Client
from tests.session.places import FREE, NOWHERE, Places
from tests.session.processes import session_process
from tests.session.tables import counts

NAMES = ("", "ready", "moorage.session.v1.SessionService", "moorage.session.v1.JournalService")
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING
SERVING = health_pb2.HealthCheckResponse.SERVING


def test_every_published_rpc_is_implemented() -> None:
    services = [
        (session_pb2.DESCRIPTOR.services_by_name["SessionService"], SessionServicer),
        (journal_pb2.DESCRIPTOR.services_by_name["JournalService"], JournalServicer),
    ]
    for service, servicer in services:
        assert [method.name for method in service.methods if method.name not in vars(servicer)] == []


async def health(channel: grpc.aio.Channel, names: tuple[str, ...] = NAMES) -> set[int]:
    stub: Any = HealthStub(channel)
    answers = [await stub.Check(health_pb2.HealthCheckRequest(service=name)) for name in names]
    return {answer.status for answer in answers}


async def test_a_ready_replica_serves(places: Places) -> None:
    async with session_process(places) as endpoint, open_channel(endpoint) as channel:
        assert await health(channel) == {SERVING}
        await Client(channel).create(session_id="s1")


async def test_a_turn_stores_the_trace_that_it_was_started_in(places: Places) -> None:
    trace_id = "0af7651916cd43dd8448eb211c80319c"
    async with session_process(places) as endpoint, open_channel(endpoint) as channel:
        client = Client(channel)
        await client.create(session_id="s1")
        await client.traced(f"00-{trace_id}-b7ad6b7169203331-01").start("s1")
    stored: str = await fetch_value(places.database_url, "SELECT traceparent FROM session.turns")
    assert stored.split("-")[1] == trace_id
    assert stored.split("-")[2] != "b7ad6b7169203331"


@pytest.mark.parametrize(("failpoint", "stored"), [("before_commit", 0), ("after_commit", 1)])
async def test_a_turn_whose_answer_was_lost_with_its_replica_is_found_by_its_request_id(
    places: Places, failpoint: str, stored: int
) -> None:
    killed = {"MOORAGE_FAILPOINTS": f"session.start_turn.{failpoint}=kill"}
    async with (
        session_process(places) as survivor,
        session_process(places, **killed) as victim,
        open_channel(survivor) as channel,
        open_channel(victim) as lost,
    ):
        client = Client(channel)
        await client.create(session_id="s1")
        with pytest.raises(Unavailable):
            await Client(lost).start("s1", request_id="r1")
        before = await counts(places.database_url)
        assert (before["turns"], before["records"]) == (stored, stored)
        turn = await client.start("s1", request_id="r1")
        assert (await client.get("s1")).turn.turn_id == turn.turn_id
        after = await counts(places.database_url)
        assert (after["turns"], after["records"]) == (1, 1)


async def starting(
    *flags: str, until: Mapping[str, str], database_url: str
) -> tuple[asyncio.subprocess.Process, str]:
    """A process that has told `until`, and its endpoint."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", "services.session", "--journal-listen", FREE, *flags),
        stderr=PIPE,
        env={**os.environ, "MOORAGE_DATABASE_URL": database_url},
    )
    assert process.stderr is not None
    endpoint = ""
    while line := await process.stderr.readline():
        told = json.loads(line)
        endpoint = endpoint or told.get("endpoint", "")
        if told.items() >= until.items():
            return process, endpoint
    raise AssertionError(f"ended with {await process.wait()} before it told {until}")


@pytest.mark.parametrize("missing", ["grant-keys", "database"])
async def test_without_what_it_depends_on_it_is_not_serving(places: Places, missing: str) -> None:
    owner = NOWHERE if missing == "grant-keys" else places.owner_address
    away = "postgresql://nobody@127.0.0.1:9/none"
    database_url = away if missing == "database" else places.database_url
    process, endpoint = await starting(
        *("--listen", FREE, "--owner-address", owner),
        until={"event": "not ready", "dependency": missing},
        database_url=database_url,
    )
    async with open_channel(endpoint) as channel:
        assert await health(channel) == {NOT_SERVING}
        assert await health(channel, ("live",)) == {SERVING}
        with pytest.raises(Unavailable) as refusal:
            await Client(channel).get("s1")
    assert refusal.value.reason == ErrorReason.ERROR_REASON_DEPENDENCY_UNAVAILABLE
    assert refusal.value.metadata["dependency"] == missing
    process.terminate()
    _, rest = await process.communicate()
    assert process.returncode == 0
    assert b"Traceback" not in rest
    # Each dependency is reported once, however often it was looked for.
    assert sum(b'"not ready"' in line for line in rest.splitlines()) <= 1


async def refused(*flags: str, database_url: str) -> str:
    """What a process that does not start tells in its one line."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", "services.session", "--journal-listen", FREE, *flags),
        stderr=PIPE,
        env={**os.environ, "MOORAGE_DATABASE_URL": database_url},
    )
    _, told = await process.communicate()
    assert process.returncode == 1
    lines = [json.loads(line) for line in told.splitlines()]
    [critical] = [line["event"] for line in lines if line["level"] == "critical"]
    assert b"Traceback" not in told
    return str(critical)


async def test_it_refuses_to_start_on_a_wrong_schema(places: Places, database_url: str) -> None:
    await execute(database_url, "UPDATE session.alembic_version SET version_num = '0000'")
    told = await refused("--listen", FREE, "--owner-address", places.owner_address, database_url=database_url)
    assert "moorage migrate" in told


async def test_it_refuses_to_start_without_a_schema(places: Places, empty_database_url: str) -> None:
    told = await refused(
        "--listen", FREE, "--owner-address", places.owner_address, database_url=empty_database_url
    )
    assert "moorage migrate" in told


async def test_it_refuses_to_start_on_a_port_in_use(places: Places) -> None:
    told = await refused("--listen", places.owner_address, database_url=places.database_url)
    assert places.owner_address in told


async def test_a_database_may_come_later(places: Places, postgres_url: str, template_database: str) -> None:
    process, endpoint = await starting(
        *("--listen", FREE, "--owner-address", places.owner_address),
        until={"event": "not ready", "dependency": "database"},
        database_url=in_database(postgres_url, "comes_later"),
    )
    await execute(postgres_url, f'CREATE DATABASE comes_later TEMPLATE "{template_database}"')
    async with open_channel(endpoint) as channel:

        async def ready() -> bool:
            return await health(channel) == {SERVING}

        await eventually(ready, within=20)
        assert not (await Client(channel).list_sessions()).sessions
    process.terminate()
    await process.communicate()
    await execute(postgres_url, "DROP DATABASE comes_later WITH (FORCE)")
