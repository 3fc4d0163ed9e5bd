"""The check that container engines run: an exit code, and one line that says why."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from services.common.errors import DependencyUnavailable
from services.common.healthcheck import check
from services.common.serving import ServiceServer
from services.common.settings import ServiceSettings

Start = Callable[..., Awaitable[ServiceServer]]


@pytest.fixture
async def start() -> AsyncIterator[Start]:
    """Start a server at an address; ready unless told otherwise."""
    servers = []

    async def started(listen: str = "127.0.0.1:0", *, cause: str = "") -> ServiceServer:
        async def probe() -> None:
            if cause:
                raise DependencyUnavailable(dependency="database", cause=cause)

        settings = ServiceSettings(listen=listen, advertise="127.0.0.1", insecure=True)
        server = ServiceServer(settings, name="test")
        server.readiness("database", probe)
        await server.start()
        servers.append(server)
        return server

    yield started
    for server in servers:
        await server.stop()


async def program(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run it as an engine does."""
    command = [sys.executable, "-m", "services.common.healthcheck", *arguments]
    return await asyncio.to_thread(
        subprocess.run, command, env=variables, capture_output=True, text=True, timeout=30
    )


async def test_a_ready_service_is_healthy(start: Start) -> None:
    server = await start()
    ended = await program(server.endpoint)
    assert (ended.returncode, ended.stderr) == (0, "")


async def test_one_that_waits_for_its_database_is_not(start: Start) -> None:
    server = await start(cause="connection refused")
    ended = await program(server.endpoint)
    assert (ended.returncode, ended.stderr) == (1, f"healthcheck: {server.endpoint} is not ready\n")


async def test_nobody_at_the_address() -> None:
    ended = await program("127.0.0.1:1")
    assert ended.returncode == 1
    assert ended.stderr.startswith("healthcheck: 127.0.0.1:1: ")
    assert ended.stderr.count("\n") == 1


async def test_without_an_address_the_service_is_found_by_the_variable_that_tells_it_where_to_listen(
    start: Start,
) -> None:
    server = await start("0.0.0.0:0")
    listen = f"0.0.0.0:{server.endpoint.rpartition(':')[2]}"
    variables = {"MOORAGE_SESSION_LISTEN": listen, "MOORAGE_SESSION_JOURNAL_LISTEN": "0.0.0.0:1"}
    ended = await program(**variables)
    assert (ended.returncode, ended.stderr) == (0, "")


@pytest.mark.parametrize(
    ("arguments", "variables", "words"),
    [
        ([], {}, "give HOST:PORT"),
        ([], {"MOORAGE_OWNER_LISTEN": "a:1", "MOORAGE_RUNNER_LISTEN": "b:2"}, "which of ['a:1', 'b:2']?"),
        (["harbour"], {}, "'harbour' is not HOST:PORT"),
    ],
)
def test_what_cannot_be_asked(
    capsys: pytest.CaptureFixture[str], arguments: list[str], variables: dict[str, str], words: str
) -> None:
    assert check(arguments, variables) == 2
    assert words in capsys.readouterr().err
