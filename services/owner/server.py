"""The owner service put together."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from functools import partial

from moorage.owner.v1 import lease_pb2
from moorage.owner.v1.lease_pb2_grpc import add_LeaseServiceServicer_to_server

from services.common.database import Database
from services.common.loops import forever
from services.common.serving import ServiceServer
from services.owner.config import OwnerSettings
from services.owner.grouping import LeaseGroups
from services.owner.keys import KeyRing
from services.owner.leases import TtlLimits
from services.owner.servicer import LeaseServicer
from services.owner.store.batches import BatchStore
from services.owner.store.keys import KeyStore
from services.owner.store.leases import LeaseStore
from services.owner.upkeep import KeyUpkeep, RequestUpkeep

NAME = "owner"


@dataclass(frozen=True, slots=True)
class Owner:
    """One replica of the owner service."""

    server: ServiceServer
    database: Database
    loops: tuple[Callable[[], Awaitable[None]], ...]

    @property
    def endpoint(self) -> str:
        """HOST:PORT, once it serves."""
        return self.server.endpoint

    async def serve(self) -> None:
        """Serve until SIGTERM or SIGINT."""
        async with self.database:
            await self.server.serve(*self.loops)

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[str]:
        """Serve within the block, ready when it is entered; gives the endpoint."""
        async with self.database:
            await self.server.start()
            running = {asyncio.create_task(_awaited(loop)) for loop in self.loops}
            try:
                await self.server.until_ready()
                yield self.endpoint
            finally:
                for task in running:
                    task.cancel()
                await asyncio.wait(running)
                await self.server.stop()


def build(settings: OwnerSettings) -> Owner:
    """A replica, not serving yet."""
    database = Database(settings, name="moorage-owner")
    leases, keys, ring = LeaseStore(database), KeyStore(database, settings.key_schedule), KeyRing()
    groups = LeaseGroups(leases, BatchStore(database))
    key_upkeep = KeyUpkeep(keys, ring, settings)
    request_upkeep = RequestUpkeep(leases, settings)
    limits = TtlLimits(settings.default_ttl, settings.min_ttl, settings.max_ttl)

    server = ServiceServer(settings, name=NAME)
    server.add(
        partial(add_LeaseServiceServicer_to_server, LeaseServicer(leases, groups, keys, ring, limits)),
        lease_pb2.DESCRIPTOR.services_by_name["LeaseService"].full_name,
    )
    has_schema = database.readiness(NAME)

    async def can_grant() -> None:
        await has_schema()
        await key_upkeep.ensure()

    server.readiness("database", can_grant)
    loops = (
        groups.run,
        partial(forever, "agreeing on grant keys", key_upkeep.step),
        partial(forever, "forgetting request ids", request_upkeep.step),
    )
    return Owner(server, database, loops)


async def _awaited(loop: Callable[[], Awaitable[None]]) -> None:
    await loop()
