"""`moorage doctor`: says in one line each what works here and what does not."""

from __future__ import annotations

import asyncio
import platform
import shutil
import sys
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from functools import partial
from pathlib import Path
from typing import Annotated, NoReturn

import grpc
import typer
from grpc_health.v1 import health_pb2
from moorage.owner.v1 import lease_pb2
from moorage.owner.v1.lease_pb2_grpc import LeaseServiceStub
from moorage.workspace.v1 import workspace_pb2
from moorage.workspace.v1.workspace_pb2_grpc import WorkspaceServiceStub

from services.cli.app import Context, JsonOption, run
from services.cli.exits import Exit
from services.cli.failures import CommandFailed
from services.cli.output import Output
from services.cli.postgres.home import EmbeddedPostgresError, packaged_programs
from services.cli.state import Running, find_running, state_directory
from services.cli.verifier import findings
from services.common.channels import open_channel

_TIMEOUT = 3.0
_LEAST_FREE = 512 * 1024 * 1024
_MINIMUM = (3, 11)

Check = Callable[[], Awaitable[str]]


_SIGNS = {"well": ("✓", "green"), "absent": ("-", ""), "unwell": ("✗", "red")}


class Unwell(CommandFailed):
    """Something is missing or does not work."""


class Absent(CommandFailed):
    """It is not there, and nothing says that it should be."""


def doctor(
    context: typer.Context,
    agent: Annotated[
        str, typer.Option(metavar="PROFILE", help="Only start this agent, and see what it lacks.")
    ] = "",
    _json: JsonOption = False,
) -> None:
    """Check this machine, and the services of the `up` around this directory, or the one that --address names."""
    options: Context = context.obj

    async def work() -> Exit:
        checks = {agent: partial(_agent, agent)} if agent else _checks(Path.cwd(), options.address)
        healthy = True
        for name, check in checks.items():
            state, told = await _found(check)
            healthy &= state != "unwell"
            _tell(options.output, name, state, told)
        return Exit.COMPLETED if healthy else Exit.FAILED

    run(options.output, work)


async def _found(check: Check) -> tuple[str, str]:
    """How it is, and what is to be said of it."""
    try:
        return "well", await check()
    except Absent as absent:
        return "absent", str(absent)
    except (Unwell, EmbeddedPostgresError, OSError, grpc.aio.AioRpcError) as error:
        return "unwell", _why(error)


def _tell(output: Output, name: str, state: str, told: str) -> None:
    if output.as_json:
        output.document({"check": name, "ok": state != "unwell", "state": state, "text": told})
        return
    sign, style = _SIGNS[state]
    output.piece(f"{sign} ", style)
    output.line(f"{name:<10} {told}")


def _checks(directory: Path, address: str) -> dict[str, Check]:
    state = state_directory(directory)
    checks: dict[str, Check] = {
        "python": _python,
        "disk": lambda: _disk(state),
        "postgres": _postgres,
    }
    if address:
        checks["session"] = partial(_serves, address)
        return checks
    running = find_running(directory)
    if running is None:
        checks["services"] = _not_running
        return checks
    for service in ("owner", "workspace", "session", "runner"):
        checks[service] = lambda service=service: _serves(getattr(running, service))  # type: ignore[misc]
    checks["agents"] = lambda: _agents(running)
    checks["docker"] = lambda: _docker(running)
    return checks


async def _python() -> str:
    if sys.version_info < _MINIMUM:
        raise Unwell(f"Python {platform.python_version()} is too old; 3.11 is needed")
    return platform.python_version()


async def _disk(state: Path) -> str:
    place = next(parent for parent in (state, *state.parents) if parent.exists())
    free = shutil.disk_usage(place).free
    if free < _LEAST_FREE:
        raise Unwell(f"only {free // 2**20} MiB are free in {place}")
    return f"{free // 2**30} GiB free in {place}"


async def _postgres() -> str:
    program = packaged_programs() / "bin" / "postgres"
    process = await asyncio.create_subprocess_exec(program, "--version", stdout=asyncio.subprocess.PIPE)
    version, _ = await process.communicate()
    if process.returncode:
        raise Unwell(f"{program} ended with {process.returncode}")
    return f"embedded: {version.decode().strip()}"


async def _not_running() -> NoReturn:
    raise Absent("none run for this directory; `moorage up` starts them")


async def _serves(address: str) -> str:
    async with open_channel(address) as channel:
        check = channel.unary_unary(
            "/grpc.health.v1.Health/Check",
            request_serializer=health_pb2.HealthCheckRequest.SerializeToString,
            response_deserializer=health_pb2.HealthCheckResponse.FromString,
        )
        answer = await check(health_pb2.HealthCheckRequest(service="ready"), timeout=_TIMEOUT)
    if answer.status != health_pb2.HealthCheckResponse.SERVING:
        raise Unwell(f"{address} answers, but is not ready; its log says why")
    return f"serves on {address}"


async def _agents(running: Running) -> str:
    async with open_channel(running.owner) as channel:
        request = lease_pb2.ListLeasesRequest(prefix="runners/", live_only=True)
        answer = await LeaseServiceStub(channel).ListLeases(request, timeout=_TIMEOUT)
    profiles = sorted(
        {name for lease in answer.leases for name in lease.labels["profiles"].split(",") if name}
    )
    if not profiles:
        raise Unwell("no live runner offers an agent profile")
    return f"profiles {', '.join(profiles)} on {len(answer.leases)} runner(s)"


async def _docker(running: Running) -> str:
    """Whether containers can be made, if they shall be."""
    async with open_channel(running.workspace) as channel:
        request = workspace_pb2.ListProvidersRequest()
        answer = await WorkspaceServiceStub(channel).ListProviders(request, timeout=_TIMEOUT)
    docker = next((provider for provider in answer.providers if provider.name == "docker"), None)
    if docker is None:
        raise Absent("makes no containers: the workspace service has no such provider")
    if not docker.images:
        raise Absent("makes no containers: no image is allowed; `moorage up --docker-image` allows one")
    images = ", ".join(docker.images)
    if docker.unavailable_cause:
        raise Unwell(f"no containers of {images} can be made: {docker.unavailable_cause}")
    return f"makes containers of {images}"


async def _agent(profile: str) -> str:
    """Whether an agent can be used here, where the program runs."""
    async with aclosing(findings(["--introduce", "--profile", profile])) as found:
        async for finding in found:
            if not finding["ok"]:
                raise Unwell(finding["text"])
            return str(finding["text"])
    raise Unwell("nothing was found")


def _why(error: Exception) -> str:
    if isinstance(error, grpc.aio.AioRpcError):
        return f"{error.code().name}: {error.details()}"
    return str(error)
