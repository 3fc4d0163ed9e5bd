"""`moorage doctor` where no `up` runs, and of a service that was named."""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncIterator
from functools import partial

import pytest
from moorage.workspace.v1 import workspace_pb2

from services.cli import containers
from services.cli.checkup import found
from services.cli.commands import doctor
from tests.cli.peers import WORKSPACE, serving
from tests.cli.programs import Place, database_like
from tests.engines import shared_engine

pytestmark = pytest.mark.timeout(120)


def test_what_does_not_run_is_no_check_mark(place: Place) -> None:
    nowhere = f"unix://{place.work}/none"
    told = place.moorage("doctor", DOCKER_HOST=nowhere)
    assert told.returncode == 0
    assert [line[0] for line in told.stdout.splitlines()] == ["✓", "✓", "✓", "-", "-"]
    asked = place.moorage("doctor", "--json", MOORAGE_WORKSPACE_DOCKER_HOST=nowhere)
    checks = [json.loads(line) for line in asked.stdout.splitlines()]
    assert [(check["ok"], check["state"]) for check in checks] == [(True, "well")] * 3 + [
        (True, "absent")
    ] * 2
    assert checks[-1]["text"] == f"no engine at {nowhere}: No such file or directory"


def test_the_service_that_was_named_is_looked_at(moored: Place, place: Place) -> None:
    [running] = moored.state_home.glob("moorage/*/up.json")
    address = json.loads(running.read_text())["session"]
    well = place.moorage("--address", address, "doctor")
    assert well.returncode == 0
    python, session, services = well.stdout.splitlines()
    assert python.startswith("✓ python ")
    assert session == f"✓ session    serves on {address}, to project default"
    assert services.startswith("- services   not named: ")
    assert "MOORAGE_OWNER_ADDRESS" in services
    away = place.moorage("--address", "127.0.0.1:1", "doctor", "--json")
    assert away.returncode == 1
    check = json.loads(away.stdout.splitlines()[1])
    assert (check["check"], check["ok"], check["state"]) == ("session", False, "unwell")


def test_inside_a_deployment_its_variables_say_what_there_is(
    moored: Place, place: Place, postgres_url: str, template_database: str
) -> None:
    [running] = moored.state_home.glob("moorage/*/up.json")
    addresses = json.loads(running.read_text())
    variables = {
        f"MOORAGE_{name.upper()}_ADDRESS": addresses[name] for name in ("owner", "workspace", "session")
    }
    with database_like(postgres_url, template_database) as url:
        variables["MOORAGE_DATABASE_URL"] = url
        told = place.moorage("doctor", **variables)
    lines = {line[2:12].strip(): line for line in told.stdout.splitlines()}
    assert list(lines) == ["python", "postgres", "owner", "workspace", "session", "agents", "docker"]
    assert told.returncode == 0
    assert lines["postgres"].startswith("✓ ")
    assert lines["postgres"].endswith(" answers, its schemas are up to date")
    assert lines["owner"] == f"✓ owner      serves on {addresses['owner']}"
    variables["MOORAGE_DATABASE_PASSWORD_FILE"] = str(place.work / "missing")
    gone = place.moorage("doctor", **variables, MOORAGE_WORKSPACE_STATE_DIRECTORY=str(place.work))
    assert gone.returncode == 1
    _, disk, postgres, *_ = gone.stdout.splitlines()
    assert disk.endswith(f" free in {place.work}")
    assert postgres.startswith("✗ postgres ")
    assert (
        place.moorage("session", "list", MOORAGE_SESSION_ADDRESS=f"dns:///{addresses['session']}").returncode
        == 0
    )


def test_a_database_without_its_migrations_is_no_check_mark(place: Place, postgres_url: str) -> None:
    with database_like(postgres_url, "template1") as url:
        told = place.moorage("doctor", "--json", MOORAGE_DATABASE_URL=url)
    [postgres] = [
        check for check in map(json.loads, told.stdout.splitlines()) if check["check"] == "postgres"
    ]
    assert (told.returncode, postgres["state"]) == (1, "unwell")
    assert "lacks migrations (owner: 0001" in postgres["text"]


@contextlib.asynccontextmanager
async def instance_with(*providers: workspace_pb2.Provider) -> AsyncIterator[str]:
    """An instance as this machine's installation may not be: older, or without its helper; its address."""
    listed = workspace_pb2.ListProvidersResponse(providers=providers)
    async with serving(WORKSPACE, {"ListProviders": lambda _: listed}) as peer:
        yield peer.address


async def test_an_instance_that_knows_no_containers_is_told_of() -> None:
    async with instance_with() as address:
        state, told = await found(partial(doctor._docker, address))
    assert (state, "has no such provider" in told) == ("absent", True)


async def test_an_engine_that_no_service_uses_is_told_of(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MOORAGE_WORKSPACE_DOCKER_HOST", shared_engine())
    state, told = await found(containers.of_this_machine)
    assert state == ("absent" if "make helper" in told else "well")
    assert told.startswith("engine ")


async def test_containers_that_are_wanted_and_cannot_be_made_are_no_check_mark() -> None:
    cause = "the helper for containers was not built for x86_64: make helper"
    docker = workspace_pb2.Provider(name="docker", images=["one", "two"], unavailable_cause=cause)
    async with instance_with(docker) as address:
        seen = await found(partial(doctor._docker, address))
    assert seen == ("unwell", f"no containers of one, two can be made: {cause}")
