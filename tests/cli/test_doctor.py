"""`moorage doctor` where no `up` runs, and of a service that was named."""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncIterator
from functools import partial

import grpc
import pytest
from moorage.workspace.v1 import workspace_pb2

from services.cli.commands import doctor
from services.cli.state import Running
from tests.cli.programs import Place

pytestmark = pytest.mark.timeout(120)


def test_what_does_not_run_is_no_check_mark(place: Place) -> None:
    told = place.moorage("doctor")
    assert told.returncode == 0
    assert [line[0] for line in told.stdout.splitlines()] == ["✓", "✓", "✓", "-"]
    checks = [json.loads(line) for line in place.moorage("doctor", "--json").stdout.splitlines()]
    assert [(check["ok"], check["state"]) for check in checks] == [(True, "well")] * 3 + [(True, "absent")]


def test_the_service_that_was_named_is_looked_at(moored: Place, place: Place) -> None:
    [running] = moored.state_home.glob("moorage/*/up.json")
    address = json.loads(running.read_text())["session"]
    well = place.moorage("--address", address, "doctor")
    assert (well.returncode, well.stdout.splitlines()[-1]) == (0, f"✓ session    serves on {address}")
    away = place.moorage("--address", "127.0.0.1:1", "doctor", "--json")
    assert away.returncode == 1
    check = json.loads(away.stdout.splitlines()[-1])
    assert (check["check"], check["ok"], check["state"]) == ("session", False, "unwell")


@contextlib.asynccontextmanager
async def instance_with(*providers: workspace_pb2.Provider) -> AsyncIterator[Running]:
    """An instance as this machine's installation may not be: older, or without its helper."""

    async def list_providers(_: object, __: object) -> workspace_pb2.ListProvidersResponse:
        return workspace_pb2.ListProvidersResponse(providers=providers)

    method = grpc.unary_unary_rpc_method_handler(
        list_providers,
        request_deserializer=workspace_pb2.ListProvidersRequest.FromString,
        response_serializer=workspace_pb2.ListProvidersResponse.SerializeToString,
    )
    service = "moorage.workspace.v1.WorkspaceService"
    server = grpc.aio.server()
    server.add_generic_rpc_handlers(
        (grpc.method_handlers_generic_handler(service, {"ListProviders": method}),)
    )
    address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    await server.start()
    try:
        yield Running(1, "", "", "", "", "", workspace=address, runner="")
    finally:
        await server.stop(0)


async def test_an_instance_that_knows_no_containers_is_told_of() -> None:
    async with instance_with() as running:
        state, told = await doctor._found(partial(doctor._docker, running))
    assert (state, "has no such provider" in told) == ("absent", True)


async def test_containers_that_are_wanted_and_cannot_be_made_are_no_check_mark() -> None:
    cause = "the helper for containers was not built for x86_64: make helper"
    docker = workspace_pb2.Provider(name="docker", images=["one", "two"], unavailable_cause=cause)
    async with instance_with(docker) as running:
        found = await doctor._found(partial(doctor._docker, running))
    assert found == ("unwell", f"no containers of one, two can be made: {cause}")
