"""The workspace service put together."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from datetime import timedelta
from functools import partial

import grpc
from moorage.workspace.v1 import workspace_pb2
from moorage.workspace.v1.workspace_pb2_grpc import add_WorkspaceServiceServicer_to_server

from services.common.channels import Channels, open_channel
from services.common.clock import Clock, SystemClock
from services.common.database import Database
from services.common.serving import ServiceServer
from services.fencing.keys import KeyCache
from services.fencing.loop import LeaseLoop, mint_holder
from services.fencing.verifier import GrantVerifier
from services.workspace.changes import Changes
from services.workspace.clients import Sessions
from services.workspace.collector.collector import Collector, Looks, Pace
from services.workspace.collector.gauges import Gauges
from services.workspace.collector.overdue import Overdue
from services.workspace.collector.sweep import Sweep
from services.workspace.collector.unclaimed import Claims
from services.workspace.config import WorkspaceSettings
from services.workspace.docker.containers import User
from services.workspace.docker.engine import Engine
from services.workspace.docker.exec.helpers import Helpers
from services.workspace.docker.ground import Ground
from services.workspace.docker.making import NAME as DOCKER
from services.workspace.docker.provider import DockerProvider, Offer
from services.workspace.exec.commands import Commands
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
from services.workspace.servicers.garbage import GarbageCalls
from services.workspace.servicers.service import Parts, WorkspaceServicer
from services.workspace.sources.filling import Filling, Means
from services.workspace.sources.setup import SettingUp
from services.workspace.specs import Limits, Network
from services.workspace.store.claims import ClaimStore
from services.workspace.store.collecting import CollectingStore
from services.workspace.store.overdue import OverdueStore
from services.workspace.store.sources import SourceStore
from services.workspace.store.work import WorkStore
from services.workspace.store.workspaces import Bounds, WorkspaceStore
from services.workspace.worker import Retries, Worker
from services.workspace.writes import Writes

NAME = "workspace"


@dataclass(frozen=True, slots=True)
class WorkspaceInstance:
    """One instance of the workspace service."""

    server: ServiceServer
    database: Database
    owner: grpc.aio.Channel
    channels: Channels
    instance: Instance
    collector: Collector
    loops: tuple[Callable[[], Awaitable[None]], ...]

    @property
    def endpoint(self) -> str:
        """HOST:PORT, once it serves."""
        return self.server.endpoint

    async def serve(self) -> None:
        """Serve until SIGTERM or SIGINT; no process is left behind."""
        async with self.database, self.owner, self.channels:
            await self.server.serve(*self.loops, drain=self.instance.drain)

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[str]:
        """Serve within the block, ready when it is entered; gives the endpoint."""
        async with self.database, self.owner, self.channels, asyncio.TaskGroup() as tasks:
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
    collecting = CollectingStore(database, settings.instance_id)
    docker = _docker(settings, instance, collecting)
    registry = Registry([_local(settings, fork_server), docker])
    retries = Retries(settings.first_retry, settings.longest_retry)
    commands, sources = Commands(instance, execs, clock), SourceStore(database)
    contents = (
        Filling(commands, fork_server, sources.upload, _means(settings)),
        SettingUp(commands, sources),
    )
    worker = Worker(instance, (store, work), registry, execs, contents, changes, retries)
    fence = Fence(store, verifier, execs, writes, settings.instance_id)
    resolver = Resolver(store, registry)
    channels = Channels()
    collector = Collector(
        instance,
        registry,
        Looks(
            Overdue(OverdueStore(database, settings.instance_id), execs),
            _claims(settings, database, channels, clock),
            Sweep(instance, collecting, store, execs, changes),
        ),
        worker,
        Gauges(settings.instance_id, clock),
        Pace(settings.collect_interval, settings.longest_retry, settings.first_retry),
        clock,
    )
    docker.engine.on_back(collector.wake)
    worker.on_failed(collector.wake)
    parts = Parts(
        instance=instance,
        store=store,
        sources=sources,
        registry=registry,
        provisioning=Provisioning(instance, store, registry, worker, _bounds(settings)),
        resolver=resolver,
        worker=worker,
        fence=fence,
        execs=execs,
        changes=changes,
        exec_calls=ExecCalls(instance, fence, execs, resolver, verifier, clock, settings.expiry_margin),
        file_calls=FileCalls(instance, fence, resolver, writes),
        garbage_calls=GarbageCalls(collector),
        stopping=server.stopping,
    )
    server.add(
        partial(add_WorkspaceServiceServicer_to_server, WorkspaceServicer(parts)),
        workspace_pb2.DESCRIPTOR.services_by_name["WorkspaceService"].full_name,
    )
    server.readiness("database", database.readiness(NAME))
    server.readiness("grant-keys", keys.ready)
    server.readiness("instance-lease", instance.ready)
    loops = (leases.run, keys.run, instance.run, worker.run, execs.run, docker.run, collector.run)
    return WorkspaceInstance(server, database, owner, channels, instance, collector, loops)


def _means(settings: WorkspaceSettings) -> Means:
    return Means(
        hosts=settings.source_hosts,
        root=str(settings.root),
        state=str(settings.state_directory),
        path=os.environ.get("PATH", os.defpath),
        size=settings.source_bytes,
        entries=settings.source_files,
        memory=settings.source_memory,
        timeout=settings.source_timeout,
    )


def _docker(settings: WorkspaceSettings, instance: Instance, collecting: CollectingStore) -> DockerProvider:
    engine = Engine(
        settings.docker_host,
        threads=settings.docker_threads,
        timeout=settings.docker_timeout,
        expected=bool(settings.docker_images),
    )
    user = User(os.geteuid(), os.getegid() or settings.docker_gid)
    if user.uid == 0:
        user = User(settings.docker_uid, settings.docker_gid)
    offer = Offer(
        enabled=settings.provision_enabled and settings.docker_enabled,
        images=settings.docker_images,
        limits=Limits(settings.docker_cpus, settings.docker_memory, settings.docker_pids),
        network=Network(settings.docker_network.upper()),
    )
    ground = Ground(
        bridge=settings.docker_bridge_network,
        state_directory=str(settings.state_directory),
        user=user,
        root=settings.named_root,
        socket=engine.socket,
        instance_id=settings.instance_id,
    )
    helpers = Helpers(engine, lambda: instance.deadline)
    docker = DockerProvider(engine, helpers, ground, offer, partial(collecting.has_any, DOCKER))
    instance.before_serving(docker.prepare)
    return docker


def _bounds(settings: WorkspaceSettings) -> Bounds:
    return Bounds(timedelta(seconds=settings.provision_timeout), settings.project_quota)


def _local(settings: WorkspaceSettings, fork_server: ForkServer) -> LocalProvider:
    default = settings.default_directory if settings.local_enabled else None
    return LocalProvider(
        root=str(settings.root) if settings.local_enabled else "",
        default_directory="" if default is None else str(default),
        state_directory=str(settings.state_directory),
        enabled=settings.provision_enabled and settings.local_enabled,
        fork_server=fork_server,
        variables=heritable(os.environ),
        barred="" if settings.local_enabled else "provider local is switched off on this instance",
    )


def _claims(settings: WorkspaceSettings, database: Database, channels: Channels, clock: Clock) -> Claims:
    store = ClaimStore(database, settings.instance_id, settings.unclaimed_after)
    if not settings.session_address:
        return Claims(store, None, clock)
    return Claims(store, Sessions(channels.to(settings.session_address)).workspace_of, clock)


async def _awaited(loop: Callable[[], Awaitable[None]]) -> None:
    await loop()
