"""The runner put together."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final

from moorage.runner.v1 import runner_pb2
from moorage.runner.v1.runner_pb2_grpc import add_RunnerServiceServicer_to_server

from services.common.channels import Channels
from services.common.clock import Clock, SystemClock
from services.common.errors import StartupRefused
from services.common.serving import ServiceServer
from services.fencing.loop import LeaseLoop, mint_holder
from services.runner.answers import Answers
from services.runner.clients.appends import Appender
from services.runner.clients.journal import JournalClient
from services.runner.clients.processes import Processes
from services.runner.clients.workspaces import Workspaces
from services.runner.config import RunnerSettings
from services.runner.dispatching import Dispatching
from services.runner.draining import Drain
from services.runner.driver import Driver
from services.runner.errands import Errands
from services.runner.executions import Executions
from services.runner.holds import Hold, Holds
from services.runner.orders import Orders
from services.runner.park import Park
from services.runner.phases import PhaseTimeouts, Workshop
from services.runner.places import Preparation
from services.runner.profiles import Profile, ProfileError, load_profiles
from services.runner.registration import Registration
from services.runner.runtimes import Patience, Runtimes
from services.runner.secrets import Secrets
from services.runner.servicer import RunnerServicer

NAME: Final = "runner"
# To store what is left and to end the turn, besides what the agent may take.
_SETTLEMENT: Final = 20.0

Loop = Callable[[], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Runner:
    """One process start of a runner."""

    server: ServiceServer
    holder: str
    executions: Executions
    channels: Channels
    loops: tuple[Loop, ...]
    drain: Loop

    @property
    def endpoint(self) -> str:
        """HOST:PORT, once it serves."""
        return self.server.endpoint

    async def serve(self) -> None:
        """Serve until SIGTERM or SIGINT."""
        async with self.channels:
            await self.server.serve(*self.loops, drain=self.drain)

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[str]:
        """Serve within the block, ready when it is entered; gives the endpoint. Drained at its end."""
        async with self.channels, asyncio.TaskGroup() as tasks:
            await self.server.start()
            running = [tasks.create_task(_awaited(loop)) for loop in self.loops]
            try:
                await self.server.until_ready()
                yield self.endpoint
                await self.drain()
            finally:
                for task in running:
                    task.cancel()
                await self.server.stop()


def build(settings: RunnerSettings) -> Runner:
    """A runner, not serving yet; raises StartupRefused for profiles that cannot be used."""
    clock, channels = SystemClock(), Channels()
    profiles = _profiles(settings)
    holder = mint_holder(settings.name)
    leases = LeaseLoop(holder, channels.to(settings.owner_address), clock)
    server = ServiceServer(settings, name=NAME)

    def endpoint() -> str:
        return server.endpoint

    registration = Registration(
        leases,
        clock,
        name=settings.name,
        ttl=settings.lease_ttl,
        endpoint=endpoint,
        labels=_labels(settings, profiles),
        registered=server.look,
    )
    journal_channel = channels.to(settings.journal_address)
    appender = Appender(journal_channel, clock, settings.call_timeout)
    journal = JournalClient(journal_channel, clock, settings.call_timeout)
    workspaces = Workspaces(channels, settings.workspace_address, settings.call_timeout)
    processes = Processes(channels, clock)
    holds = Holds(leases, workspaces, clock, ttl=settings.lease_ttl, endpoint=endpoint)
    patience = _patience(settings)
    park: Park[Hold] = Park(clock, limit=settings.park_limit, window=settings.park_timeout)
    workshop = _workshop(settings, clock, workspaces, processes, profiles, park)
    executions = Executions(clock, settings.capacity)
    driver = Driver(workshop, journal, appender)
    dispatching = Dispatching(executions, holds, park, driver.drive, driver.settle, clock)
    drain = Drain(
        dispatching,
        executions,
        park,
        registration,
        clock,
        withdraw=server.withdraw,
        grace=settings.drain_timeout,
        stopping=patience.cancel + patience.close + patience.terminate + _SETTLEMENT,
    )
    server.add(
        partial(
            add_RunnerServiceServicer_to_server,
            RunnerServicer(
                holder, dispatching, executions, Orders(executions, park), Answers(executions), drain
            ),
        ),
        runner_pb2.DESCRIPTOR.services_by_name["RunnerService"].full_name,
    )
    server.readiness("registration", registration.ready)
    loops: tuple[Loop, ...] = (
        leases.run,
        appender.run,
        park.run,
        dispatching.run,
        registration.run,
        drain.watch,
    )
    return Runner(server, holder, executions, channels, loops, drain.run)


def _workshop(
    settings: RunnerSettings,
    clock: Clock,
    workspaces: Workspaces,
    processes: Processes,
    profiles: Mapping[str, Profile],
    park: Park[Hold],
) -> Workshop:
    return Workshop(
        clock=clock,
        preparation=Preparation(workspaces, clock),
        runtimes=Runtimes(processes, clock, _patience(settings)),
        secrets=Secrets(settings.secrets_directory),
        profiles=profiles,
        timeouts=PhaseTimeouts(settings.prepare_timeout, settings.agent_start_timeout, settings.load_timeout),
        history_bytes=settings.history_bytes,
        may_park=lambda: park.is_open,
        errands=partial(Errands, workspaces, processes, clock),
    )


def _patience(settings: RunnerSettings) -> Patience:
    return Patience(settings.cancel_timeout, settings.close_timeout, settings.terminate_timeout)


def _profiles(settings: RunnerSettings) -> dict[str, Profile]:
    try:
        return load_profiles(settings.profiles_directory)
    except ProfileError as error:
        raise StartupRefused(str(error)) from error


def _labels(settings: RunnerSettings, profiles: Mapping[str, Profile]) -> dict[str, str]:
    return {
        "role": NAME,
        "pool": settings.pool,
        "capacity": str(settings.capacity),
        "profiles": ",".join(sorted(profiles)),
        "networked": ",".join(
            sorted(name for name, profile in profiles.items() if profile.network == "required")
        ),
    }


async def _awaited(loop: Loop) -> None:
    await loop()
