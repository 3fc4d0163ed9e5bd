"""Every test here is made with each provider's processes."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from services.workspace.docker.exec.helper import why_missing
from tests.engines import shared_engine
from tests.workspace.conformance.places import Container, DockerPlace, Engine, LocalPlace, Place


@pytest.fixture(scope="module")
def container() -> Iterator[Container]:
    """One for all tests of a file."""
    engine = Engine(shared_engine())
    if missing := why_missing(engine.api.version()["Arch"]):
        pytest.skip(missing)
    container = Container.make(engine)
    yield container
    container.remove()
    engine.close()


@pytest.fixture(params=["local", "docker"])
async def place(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Place]:
    """Of each provider."""
    made = (
        LocalPlace(tmp_path)
        if request.param == "local"
        else DockerPlace(request.getfixturevalue("container"))
    )
    yield made
    await made.close()


@pytest.fixture
def tag() -> str:
    """For how long the processes of a test sleep: no others do."""
    return f"6{secrets.randbelow(10**8):08}"
