"""Whether sessions can have containers, in words: as the workspace service tells, or this machine where none runs."""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Final

import grpc
from moorage.workspace.v1 import workspace_pb2
from moorage.workspace.v1.workspace_pb2_grpc import WorkspaceServiceStub

from services.cli.checkup import Absent, Unwell
from services.common.channels import open_channel

_MODULE: Final = "services.workspace.docker"
_PROVIDER: Final = "docker"
# The service answers in half of it, also when its engine hangs.
_MOMENT: Final = 1.0
_ALLOWS: Final = "`up --docker-image`"
_VARIABLE: Final = "MOORAGE_WORKSPACE_DOCKER_IMAGES"


async def provider_at(address: str, timeout: float) -> workspace_pb2.Provider | None:
    """What a workspace service tells of its provider `docker`; None where it has none."""
    async with open_channel(address) as channel:
        request = workspace_pb2.ListProvidersRequest()
        answer = await WorkspaceServiceStub(channel).ListProviders(request, timeout=timeout)
    return next((provider for provider in answer.providers if provider.name == _PROVIDER), None)


async def allowed_at(address: str) -> workspace_pb2.Provider | None:
    """The same of a service that has just started, in a moment; None where it allows none, or does not tell."""
    try:
        provider = await provider_at(address, _MOMENT)
    except grpc.aio.AioRpcError:
        return None
    return provider if provider and provider.images else None


def brief(provider: workspace_pb2.Provider) -> tuple[str, str]:
    """What is to be said of it when it starts, and in which style."""
    try:
        return f"{told(provider)} at {provider.engine.address}", ""
    except Absent as absent:
        return str(absent), ""
    except Unwell as unwell:
        engine = provider.engine
        is_there = engine.version and not engine.unavailable_cause
        on = f" (engine {engine.version} at {engine.address})" if is_there else ""
        return f"{unwell}{on}", "yellow"


def told(provider: workspace_pb2.Provider | None) -> str:
    """What containers it makes. Absent when none are wanted; Unwell when not all that are can be made."""
    if provider is None:
        raise Absent("makes no containers: the workspace service has no such provider")
    if not provider.images:
        raise Absent(f"no image is allowed: {_ALLOWS}, in deployments {_VARIABLE}")
    if provider.withheld:
        raise Absent(f"makes no containers: {provider.unavailable_cause} by the service's settings")
    images, obstacles = ", ".join(provider.images), obstacles_of(provider)
    if obstacles and set(provider.engine.missing_images) < set(provider.images) and _answers(provider):
        raise Unwell("; ".join(obstacles))
    if obstacles:
        raise Unwell(f"no containers of {images} can be made: {'; '.join(obstacles)}")
    on = f" on engine {provider.engine.version}" if provider.HasField("engine") else ""
    return f"makes containers of {images}{on}"


def obstacles_of(provider: workspace_pb2.Provider) -> list[str]:
    """All that keeps it from making containers of its images, each with what to do about it."""
    found = [] if provider.enabled else [provider.unavailable_cause]
    if provider.HasField("engine"):
        found.append(_lack(provider.engine))
    elif provider.enabled:
        found.append(provider.unavailable_cause)
    return [each for each in found if each]


def _answers(provider: workspace_pb2.Provider) -> bool:
    engine = provider.engine
    return provider.enabled and bool(engine.version) and not engine.unavailable_cause


def _lack(engine: workspace_pb2.Engine) -> str:
    if engine.unavailable_cause:
        return engine.unavailable_cause
    if not engine.version:
        return f"the engine at {engine.address} does not answer yet"
    if not engine.missing_images:
        return ""
    missing = ", ".join(engine.missing_images)
    return f"the engine lacks {missing}: build or pull it there"


async def of_this_machine() -> str:
    """Its engine and its helper, where no service looks at them: nobody has asked for containers."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", _MODULE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    try:
        output, errors = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
    if process.returncode:
        raise Unwell(errors.decode().strip())
    found = json.loads(output)
    if found["cause"]:
        raise Absent(found["cause"])
    if found["helper"]:
        raise Absent(f"engine {found['version']}, but {found['helper']}")
    return f"engine {found['version']}; {_ALLOWS} allows containers"
