"""What `moorage doctor` looks at: the machine, the database, and services by their addresses."""

from __future__ import annotations

import asyncio
import os
import platform
import shutil
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from urllib.parse import urlsplit

import grpc
import typer
from grpc_health.v1 import health_pb2
from moorage.owner.v1 import lease_pb2
from moorage.owner.v1.lease_pb2_grpc import LeaseServiceStub
from moorage.session.v1 import session_pb2
from moorage.session.v1.session_pb2_grpc import SessionServiceStub

from services.cli.database import DatabaseAddress
from services.cli.failures import CommandFailed
from services.cli.postgres.home import EmbeddedPostgresError, packaged_programs
from services.cli.stack import SCHEMAS
from services.common.channels import open_channel
from services.common.errors import MoorageError, StartupRefused
from services.common.migrations import pending
from services.common.project import PROJECT_KEY

TIMEOUT = 3.0
_LEAST_FREE = 512 * 1024 * 1024
_MINIMUM = (3, 11)
_WORKSPACES_VARIABLE = "MOORAGE_WORKSPACE_STATE_DIRECTORY"

Check = Callable[[], Awaitable[str]]


class Unwell(CommandFailed):
    """Something is missing or does not work."""


class Absent(CommandFailed):
    """It is not there, and nothing says that it should be."""


async def found(check: Check) -> tuple[str, str]:
    """How it is, and what is to be said of it."""
    try:
        return "well", await check()
    except Absent as absent:
        return "absent", str(absent)
    except (Unwell, MoorageError, StartupRefused, EmbeddedPostgresError, OSError) as error:
        return "unwell", str(error)
    except grpc.aio.AioRpcError as error:
        return "unwell", f"{error.code().name}: {error.details()}"


async def python() -> str:
    """The interpreter."""
    if sys.version_info < _MINIMUM:
        raise Unwell(f"Python {platform.python_version()} is too old; 3.11 is needed")
    return platform.python_version()


async def disk(state: Path) -> str:
    """Where data and logs are kept, or will be."""
    place = next(parent for parent in (state, *state.parents) if parent.exists())
    free = shutil.disk_usage(place).free
    if free < _LEAST_FREE:
        raise Unwell(f"only {free // 2**20} MiB are free in {place}")
    return f"{free // 2**30} GiB free in {place}"


def kept_here() -> Path | None:
    """Where a deployment's workspace service, in whose container this runs, makes workspaces; None elsewhere."""
    named = os.environ.get(_WORKSPACES_VARIABLE)
    return Path(named) if named else None


async def embedded() -> str:
    """The PostgreSQL that `up` brings along."""
    program = packaged_programs() / "bin" / "postgres"
    process = await asyncio.create_subprocess_exec(program, "--version", stdout=asyncio.subprocess.PIPE)
    version, _ = await process.communicate()
    if process.returncode:
        raise Unwell(f"{program} ended with {process.returncode}")
    return f"embedded: {version.decode().strip()}"


async def reached(database: DatabaseAddress) -> str:
    """The database that is named: whether it can be written to, and has all migrations."""
    try:
        url = database.for_migrations()
    except typer.BadParameter as error:
        raise Unwell(error.message) from None
    place = _without_user(url)
    left = {schema: await pending(url, schema) for schema in SCHEMAS}
    behind = [f"{schema}: {', '.join(revisions)}" for schema, revisions in left.items() if revisions]
    if behind:
        raise Unwell(f"{place} lacks migrations ({'; '.join(behind)}); `moorage migrate` applies them")
    return f"{place} answers, its schemas are up to date"


async def none_run() -> str:
    """Nothing says where services are."""
    raise Absent("none run for this directory; `moorage up` starts them")


async def none_named() -> str:
    """Only the session service was named, as clients know it."""
    raise Absent(
        "not named: owner and workspace are for operators; "
        "MOORAGE_OWNER_ADDRESS and MOORAGE_WORKSPACE_ADDRESS name them"
    )


async def serves(address: str) -> str:
    """Whether the service there is ready."""
    async with open_channel(address) as channel:
        check = channel.unary_unary(
            "/grpc.health.v1.Health/Check",
            request_serializer=health_pb2.HealthCheckRequest.SerializeToString,
            response_deserializer=health_pb2.HealthCheckResponse.FromString,
        )
        answer = await check(health_pb2.HealthCheckRequest(service="ready"), timeout=TIMEOUT)
    if answer.status != health_pb2.HealthCheckResponse.SERVING:
        raise Unwell(f"{address} answers, but is not ready; its log says why")
    return f"serves on {address}"


async def serves_project(address: str, project: str) -> str:
    """The same of a session service, and whether this project's sessions can be read there."""
    told = await serves(address)
    async with open_channel(address) as channel:
        request = session_pb2.ListSessionsRequest(page_size=1)
        metadata = ((PROJECT_KEY, project),)
        await SessionServiceStub(channel).ListSessions(request, metadata=metadata, timeout=TIMEOUT)
    return f"{told}, to project {project}"


async def agents(owner: str) -> str:
    """What live runners offer."""
    async with open_channel(owner) as channel:
        request = lease_pb2.ListLeasesRequest(prefix="runners/", live_only=True)
        answer = await LeaseServiceStub(channel).ListLeases(request, timeout=TIMEOUT)
    profiles = sorted(
        {name for lease in answer.leases for name in lease.labels["profiles"].split(",") if name}
    )
    if not profiles:
        raise Unwell("no live runner offers an agent profile")
    return f"profiles {', '.join(profiles)} on {len(answer.leases)} runner(s)"


def _without_user(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.netloc.rpartition('@')[2]}{parts.path}"
