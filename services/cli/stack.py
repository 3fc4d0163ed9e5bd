"""All four services on this machine, around one directory, with a database."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from services.cli.ports import choose
from services.cli.postgres import EmbeddedPostgres
from services.cli.state import Running, announced, only_one
from services.cli.supervisor import ServiceSpec, Supervisor
from services.common.migrations import migrate

SCHEMAS = ("owner", "session", "workspace")
_PORTS = {"owner": 7800, "session": 7801, "workspace": 7802, "runner": 7803, "journal": 7811}


@dataclass(frozen=True, slots=True)
class StackOptions:
    """What to start.

    `root` is where agents may work, `state` where data and logs go. Without
    `database_url` an embedded PostgreSQL keeps its data in `state`. `listen` fixes
    addresses by service name; `environment` is for the services.
    """

    root: Path
    state: Path
    database_url: str | None = None
    listen: Mapping[str, str] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Stack:
    """A running set of services."""

    running: Running
    supervisor: Supervisor
    logs: Path


@asynccontextmanager
async def run_stack(options: StackOptions) -> AsyncIterator[Stack]:
    """Start everything and wait until it serves; end it all with the block."""
    with only_one(options.state):
        async with _database(options) as database_url:
            for schema in SCHEMAS:
                await migrate(database_url, schema)
            addresses = choose(_PORTS, options.listen)
            running = Running(pid=os.getpid(), root=str(options.root), **addresses)
            logs = options.state / "logs"
            async with Supervisor(logs) as supervisor:
                for spec in _specs(options, running, database_url):
                    await supervisor.start(spec)
                await supervisor.wait_ready()
                with announced(options.state, running):
                    yield Stack(running, supervisor, logs)


@asynccontextmanager
async def _database(options: StackOptions) -> AsyncIterator[str]:
    if options.database_url:
        yield options.database_url
        return
    postgres = EmbeddedPostgres(options.state / "postgres")
    # Started from this thread: the server's life is tied to the thread that starts it.
    url = postgres.start()
    try:
        yield url
    finally:
        postgres.stop()


def _specs(options: StackOptions, running: Running, database_url: str) -> list[ServiceSpec]:
    database = {**options.environment, "MOORAGE_DATABASE_URL": database_url}
    owner = ("--owner-address", running.owner)
    workspace = ("--workspace-address", running.workspace)
    return [
        ServiceSpec("owner", running.owner, ("--listen", running.owner), database),
        ServiceSpec(
            "workspace",
            running.workspace,
            (
                *("--listen", running.workspace, *owner, "--instance-id", "local"),
                *("--root", str(options.root), "--default-directory", str(options.root)),
                *("--state-directory", str(options.state / "workspaces")),
            ),
            database,
        ),
        ServiceSpec(
            "session",
            running.session,
            ("--listen", running.session, "--journal-listen", running.journal, *owner, *workspace),
            database,
        ),
        ServiceSpec(
            "runner",
            running.runner,
            (
                *("--listen", running.runner, "--name", "local"),
                *("--journal-address", running.journal, *owner, *workspace),
            ),
            options.environment,
        ),
    ]
