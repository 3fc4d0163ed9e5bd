"""The workspace service put together."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from functools import partial

import grpc
from moorage.workspace.v1 import workspace_pb2
from moorage.workspace.v1.workspace_pb2_grpc import add_WorkspaceServiceServicer_to_server

from services.common.channels import open_channel
from services.common.clock import SystemClock
from services.common.database import Database
from services.common.serving import ServiceServer
from services.fencing.keys import KeyCache
from services.fencing.loop import LeaseLoop, mint_holder
from services.fencing.verifier import GrantVerifier
from services.workspace.changes import Changes
from services.workspace.config import WorkspaceSettings
from services.workspace.exec.environment import heritable
from services.workspace.exec.execs import Execs
from services.workspace.exec.forkserver import ForkServer
from services.workspace.fence import Fence
from services.workspace.instance import Instance, Place
from services.workspace.providers.local import LocalProvider
from services.workspace.providers.registry import Registry
from services.workspace.provisioning import Provisioning
from services.workspace.resolving import Resolver
from services.workspace.servicers.execs import ExecCalls
from services.workspace.servicers.files import FileCalls
from services.workspace.servicers.service import Parts, WorkspaceServicer
from services.workspace.store.work import WorkStore
from services.workspace.store.workspaces import WorkspaceStore
from services.workspace.worker import Retries, Worker
from services.workspace.writes import Writes

NAME = "workspace"


@dataclass(frozen=True, slots=True)
class WorkspaceInstance:
    """One instance of the workspace service."""

    server: ServiceServer
    database: Database
    owner: grpc.aio.Channel
    instance: Instance
    loops: tuple[Callable[[], Awaitable[None]], ...]

    @property
    def endpoint(self) -> str:
        """HOST:PORT, once it serves."""
        return self.server.endpoint

    async def serve(self) -> None:
        """Serve until SIGTERM or SIGINT; no process is left behind."""
        async with self.database, self.owner:
            await self.server.serve(*self.loops, drain=self.instance.drain)

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[str]:
        """Serve within the block, ready when it is entered; gives the endpoint."""
        async with self.database, self.owner, asyncio.TaskGroup() as tasks:
            running: list[asyncio.Task[None]] = []
            try:
                await self.server.start()
                running += (tasks.create_task(_awaited(loop)) for loop in self.loops)
                await self.server.until_ready()
                yield self.endpoint
            finally:
                await self.instance.drain()
                self.server.stopping.set()
                for task in running:
                    task.cancel()
                await self.server.stop()


def build(settings: WorkspaceSettings) -> WorkspaceInstance:
    """An instance, not serving yet."""
    clock = SystemClock()
    database = Database(settings, name="moorage-workspace")
    owner = open_channel(settings.owner_address)
    leases = LeaseLoop(mint_holder(settings.instance_id), owner, clock)
    keys = KeyCache(owner, clock)
    verifier = GrantVerifier(keys, clock, max_clock_skew=settings.max_clock_skew)
    server = ServiceServer(settings, name=NAME)

    store, work = WorkspaceStore(database), WorkStore(database, settings.instance_id)
    execs, writes, fork_server, changes = Execs(), Writes(), ForkServer(), Changes()
    place = Place(
        settings.instance_id, settings.lease_ttl, settings.predecessor_grace, lambda: server.endpoint
    )
    instance = Instance(place, leases, work, execs, writes, fork_server)
    registry = Registry([_local(settings, fork_server)])
    retries = Retries(settings.first_retry, settings.longest_retry)
    worker = Worker(instance, (store, work), registry, execs, changes, retries)
    fence = Fence(store, verifier, execs, writes, settings.instance_id)
    resolver = Resolver(store, registry)
    parts = Parts(
        instance=instance,
        store=store,
        registry=registry,
        provisioning=Provisioning(instance, store, registry, worker, settings.provision_timeout),
        resolver=resolver,
        worker=worker,
        fence=fence,
        execs=execs,
        changes=changes,
        exec_calls=ExecCalls(instance, fence, execs, resolver, verifier, clock, settings.expiry_margin),
        file_calls=FileCalls(instance, fence, resolver, writes),
        stopping=server.stopping,
    )
    server.add(
        partial(add_WorkspaceServiceServicer_to_server, WorkspaceServicer(parts)),
        workspace_pb2.DESCRIPTOR.services_by_name["WorkspaceService"].full_name,
    )
    server.readiness("database", database.readiness(NAME))
    server.readiness("grant-keys", keys.ready)
    server.readiness("instance-lease", instance.ready)
    loops = (leases.run, keys.run, instance.run, worker.run, execs.run)
    return WorkspaceInstance(server, database, owner, instance, loops)


def _local(settings: WorkspaceSettings, fork_server: ForkServer) -> LocalProvider:
    default = settings.default_directory
    return LocalProvider(
        root=str(settings.root),
        default_directory="" if default is None else str(default),
        state_directory=str(settings.state_directory),
        enabled=settings.provision_enabled,
        fork_server=fork_server,
        variables=heritable(os.environ),
    )


async def _awaited(loop: Callable[[], Awaitable[None]]) -> None:
    await loop()
