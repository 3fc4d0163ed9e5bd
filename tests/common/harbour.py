"""A service as a process of its own: `python -m tests.common.harbour`."""

from __future__ import annotations

import asyncio
from functools import partial

from services.common.database import Database
from services.common.failpoints import failpoint
from services.common.logs import get_logger
from services.common.process import run_service
from services.common.serving import ServiceServer
from services.common.settings import DatabaseSettings, ServiceSettings, load_settings
from tests.common.echo import SERVICE, Echo

log = get_logger(__name__)


class HarbourSettings(ServiceSettings, DatabaseSettings, env_prefix="MOORAGE_HARBOUR_"):
    """The harbour."""

    database_url: str = ""
    drain_time: float = 0.0


async def main(settings: HarbourSettings) -> None:
    """Everything a service does: a database if it has one, a loop, a drain."""
    server = ServiceServer(settings, name="harbour")
    server.add(Echo().add_to, SERVICE)
    async with Database(settings) as database:
        if settings.database_url:
            server.readiness("database", database.readiness("owner"))
        await server.serve(beat, drain=partial(drain, settings, server))


async def beat() -> None:
    """A loop that says when it begins and ends."""
    log.info("loop begun")
    try:
        await failpoint("harbour.loop")
        await asyncio.Event().wait()
    finally:
        log.info("loop ended")


async def drain(settings: HarbourSettings, server: ServiceServer) -> None:
    """Take the time that was set."""
    log.info("drain begun", stopping=server.stopping.is_set())
    await failpoint("harbour.drain")
    await asyncio.sleep(settings.drain_time)
    log.info("drain ended")


if __name__ == "__main__":
    harbour = load_settings(HarbourSettings)
    run_service("harbour", harbour, partial(main, harbour))
