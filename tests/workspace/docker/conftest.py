"""A machine whose instance makes containers."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.engines import PrivateEngine, private_engine, shared_engine
from tests.workspace.docker.yard import Yard
from tests.workspace.instances import Client, Machine


@pytest.fixture
async def yard(machine: Machine) -> AsyncIterator[Yard]:
    """On the engine that all tests share."""
    yard = Yard(machine, shared_engine())
    yield yard
    await yard.clear()


@pytest.fixture
async def client(yard: Yard) -> AsyncIterator[Client]:
    """A client of a ready instance."""
    async with yard.running() as (client, _):
        yield client


@pytest.fixture
async def engine() -> AsyncIterator[PrivateEngine]:
    """An engine of this test only."""
    async with private_engine() as engine:
        yield engine


@pytest.fixture
def lonely_yard(machine: Machine, engine: PrivateEngine) -> Yard:
    """On an engine that may be killed and paused."""
    return Yard(machine, engine.address)
