"""All four services on this machine, around one directory, with a database."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import NoReturn, TypeVar

import tenacity

from services.cli.database import DatabaseAddress
from services.cli.ports import all_free, choose
from services.cli.postgres.embedded import EmbeddedPostgres
from services.cli.racing import first
from services.cli.state import Running, announced, only_one
from services.cli.supervisor import ServiceFailed, ServiceSpec, Supervisor
from services.common.migrations import migrate

T = TypeVar("T")

SCHEMAS = ("owner", "session", "workspace")
PORTS = {"owner": 7800, "session": 7801, "workspace": 7802, "runner": 7803, "journal": 7811}
_ROOTS_HOME = Path("/root")
_ROOTS_WORKSPACES = Path("/var/lib/moorage-workspaces")
_TRIES = 3
_POLL = 0.5


@dataclass(frozen=True, slots=True)
class StackOptions:
    """What to start.

    `root` is where agents may work, `state` where data and logs go. Without
    a URL in `database` an embedded PostgreSQL keeps its data in `state`. `listen` fixes
    addresses by the names of PORTS; the others are these, or free ones. `images` are those
    that containers can have; without any, the settings of the workspace service count. `tell`
    hears what takes a while.
    """

    root: Path
    state: Path
    database: DatabaseAddress = field(default_factory=DatabaseAddress)
    listen: Mapping[str, str] = field(default_factory=dict)
    images: Sequence[str] = ()
    tell: Callable[[str], None] = lambda _: None

    @property
    def logs(self) -> Path:
        """The directory of the services' logs."""
        return self.state / "logs"


@dataclass(frozen=True, slots=True)
class Stack:
    """A running set of services; `postgres` is the database if it is an embedded one."""

    running: Running
    supervisor: Supervisor
    postgres: EmbeddedPostgres | None

    async def during(self, work: Awaitable[T]) -> T:
        """Do some work. Raises ServiceFailed as soon as something ends that should not."""
        return await first(self.supervisor.wait_failure(), _wait_failure(self.postgres), work)


@asynccontextmanager
async def run_stack(options: StackOptions) -> AsyncIterator[Stack]:
    """Start everything and wait until it serves; end it all with the block."""
    choose({}, options.listen)  # what cannot be had is refused before anything is made
    with only_one(options.state), _database(options) as (database, postgres):
        for schema in SCHEMAS:
            await migrate(database.for_migrations(), schema)
        async with Supervisor(options.logs) as supervisor:
            running = await _start(options, database, supervisor)
            with announced(options.state, running):
                yield Stack(running, supervisor, postgres)


@contextmanager
def _database(options: StackOptions) -> Iterator[tuple[DatabaseAddress, EmbeddedPostgres | None]]:
    if options.database.url:
        yield options.database, None
        return
    place = options.state / "postgres"
    options.tell(f"{'starting' if place.exists() else 'making'} the database…")
    postgres = EmbeddedPostgres(place)
    try:
        # In this thread: the server's life is tied to the thread that starts it.
        yield DatabaseAddress(postgres.start()), postgres
    finally:
        postgres.stop()


async def _wait_failure(postgres: EmbeddedPostgres | None) -> NoReturn:
    while postgres is None or postgres.pid is not None:
        await asyncio.sleep(_POLL)
    raise ServiceFailed("PostgreSQL ended", f"its log is {postgres.log_file}")


class _PortLost(ServiceFailed):
    """Somebody took a chosen port before the service did."""


@tenacity.retry(
    retry=tenacity.retry_if_exception_type(_PortLost), stop=tenacity.stop_after_attempt(_TRIES), reraise=True
)
async def _start(options: StackOptions, database: DatabaseAddress, supervisor: Supervisor) -> Running:
    addresses = choose(PORTS, options.listen)
    running = Running(os.getpid(), str(options.root), str(options.logs), **addresses)
    for spec in service_specs(options, running, database):
        await supervisor.start(spec)
    try:
        await supervisor.wait_ready()
    except ServiceFailed as failure:
        await supervisor.stop()
        if all_free(addresses.values()):
            raise
        raise _PortLost(str(failure)) from None
    return running


def workspaces_of(state: Path) -> Path:
    """Where workspaces are made. Most images close root's home to everybody else, so root's lie outside of it."""
    if state.is_relative_to(_ROOTS_HOME):
        return _ROOTS_WORKSPACES / state.name
    return state / "workspaces"


def service_specs(options: StackOptions, running: Running, database: DatabaseAddress) -> list[ServiceSpec]:
    """How each service is started, in this order."""
    told = database.environment()
    owner = ("--owner-address", running.owner)
    workspace = ("--workspace-address", running.workspace)
    return [
        ServiceSpec("owner", running.owner, ("--listen", running.owner), told),
        ServiceSpec(
            "workspace",
            running.workspace,
            (
                *("--listen", running.workspace, *owner, "--instance-id", "local"),
                *("--session-address", running.session),
                *("--root", str(options.root), "--default-directory", str(options.root)),
                *("--state-directory", str(workspaces_of(options.state))),
                *(("--docker-images", json.dumps(options.images)) if options.images else ()),
            ),
            told,
        ),
        ServiceSpec(
            "session",
            running.session,
            ("--listen", running.session, "--journal-listen", running.journal, *owner, *workspace),
            told,
        ),
        ServiceSpec(
            "runner",
            running.runner,
            (
                *("--listen", running.runner, "--name", "local"),
                *("--journal-address", running.journal, *owner, *workspace),
            ),
        ),
    ]
