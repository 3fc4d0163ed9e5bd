"""What a server says of itself: health, and what it refuses while its dependencies are missing."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from services.common.channels import open_channel
from services.common.errors import DependencyUnavailable, StartupRefused, Unavailable
from services.common.serving import ServiceServer
from services.common.settings import ServiceSettings
from services.common.status import from_rpc_error
from tests.common.conftest import Logs
from tests.common.echo import SERVICE, Caller, Echo
from tests.conditions import eventually

pb: Any = health_pb2
SERVING, NOT_SERVING = pb.HealthCheckResponse.SERVING, pb.HealthCheckResponse.NOT_SERVING
UNKNOWN = pb.HealthCheckResponse.SERVICE_UNKNOWN


class Dependency:
    """Something a service needs, there or not."""

    def __init__(self) -> None:
        self.cause = "connection refused"
        self.asked = 0

    async def probe(self) -> None:
        self.asked += 1
        if self.cause:
            raise DependencyUnavailable(dependency="database", cause=self.cause)


@pytest.fixture
def dependency() -> Dependency:
    return Dependency()


@pytest.fixture
async def waiting_server(
    settings: ServiceSettings, echo: Echo, dependency: Dependency
) -> AsyncIterator[ServiceServer]:
    """A started server whose dependency is not there yet."""
    server = ServiceServer(settings, name="test")
    server.add(echo.add_to, SERVICE)
    server.readiness("database", dependency.probe)
    await server.start()
    yield server
    await server.stop()


def health_of(channel: grpc.aio.Channel) -> Any:
    return health_pb2_grpc.HealthStub(channel)


async def status(channel: grpc.aio.Channel, name: str) -> int:
    return int((await health_of(channel).Check(pb.HealthCheckRequest(service=name))).status)


async def test_health_follows_the_dependencies(waiting_server: ServiceServer, dependency: Dependency) -> None:
    async with open_channel(waiting_server.endpoint) as channel:
        before = {name: await status(channel, name) for name in ("live", "ready", "", SERVICE)}
        assert before == {"live": SERVING, "ready": NOT_SERVING, "": NOT_SERVING, SERVICE: NOT_SERVING}
        dependency.cause = ""
        await waiting_server.until_ready()
        after = await health_of(channel).List(pb.HealthListRequest())
        assert {name: entry.status for name, entry in after.statuses.items()} == dict.fromkeys(
            before, SERVING
        )
        dependency.cause = "gone"
        await eventually(lambda: _is(channel, "ready", NOT_SERVING))
        assert await status(channel, "live") == SERVING


async def _is(channel: grpc.aio.Channel, name: str, expected: int) -> bool:
    return await status(channel, name) == expected


async def test_an_unknown_name_has_no_health(server: ServiceServer) -> None:
    async with open_channel(server.endpoint) as channel:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await status(channel, "nobody")
        assert caught.value.code() is grpc.StatusCode.NOT_FOUND
        watch = health_of(channel).Watch(pb.HealthCheckRequest(service="nobody"))
        assert (await watch.read()).status == UNKNOWN
        watch.cancel()


async def test_a_watcher_of_health_sees_each_change_and_the_end(
    waiting_server: ServiceServer, dependency: Dependency
) -> None:
    async with open_channel(waiting_server.endpoint) as channel:
        watch = health_of(channel).Watch(pb.HealthCheckRequest(service=SERVICE))
        assert (await watch.read()).status == NOT_SERVING
        dependency.cause = ""
        assert (await watch.read()).status == SERVING
        dependency.cause = "gone"
        assert (await watch.read()).status == NOT_SERVING
        await waiting_server.stop()
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await watch.read()
        assert from_rpc_error(caught.value).reason_name == "SHUTTING_DOWN"


async def test_the_cause_is_logged_once_per_change(
    settings: ServiceSettings, dependency: Dependency, logs: Logs
) -> None:
    server = ServiceServer(settings, name="test")
    server.readiness("database", dependency.probe)
    await server.start()
    await eventually(lambda: dependency.asked > 4)
    dependency.cause = ""
    await server.until_ready()
    await server.stop()
    [line] = logs.lines("not ready")
    assert (line["dependency"], line["cause"]) == ("database", "connection refused")
    assert len(logs.lines("dependency is back")) == 1
    assert "Traceback" not in logs.text


async def test_calls_are_refused_until_the_dependencies_were_seen(
    waiting_server: ServiceServer, dependency: Dependency
) -> None:
    async with open_channel(waiting_server.endpoint) as channel:
        caller = Caller(channel)
        for method in ("Unary", "Download", "Upload", "Chat"):
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await caller.call(method, "ok")
            error = from_rpc_error(caught.value)
            assert isinstance(error, Unavailable)
            assert error.reason_name == "DEPENDENCY_UNAVAILABLE"
            assert error.metadata == {"dependency": "database", "cause": "connection refused"}
        dependency.cause = ""
        await waiting_server.until_ready()
        assert await caller.call("Unary", "ok") == "ok"
        dependency.cause = "gone"
        await eventually(lambda: _is(channel, "ready", NOT_SERVING))
        assert await caller.call("Unary", "ok") == "ok"


async def test_a_refusal_of_a_probe_ends_the_start(settings: ServiceSettings) -> None:
    async def wrong_schema() -> None:
        raise StartupRefused("the schema owner is at 0001")

    server = ServiceServer(settings, name="test")
    server.readiness("database", wrong_schema)
    with pytest.raises(StartupRefused, match="0001"):
        await server.serve()
