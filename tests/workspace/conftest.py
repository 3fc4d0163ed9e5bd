"""An owner, a machine with directories, and a ready instance on it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import grpc
import pytest

from services.common.channels import open_channel
from tests.workspace.bench import Bench
from tests.workspace.instances import Client, Holder, Machine, running, running_owner


@pytest.fixture
async def owner_address(database_url: str) -> AsyncIterator[str]:
    """A ready owner."""
    async with running_owner(database_url) as endpoint:
        yield endpoint


@pytest.fixture
async def owner_channel(owner_address: str) -> AsyncIterator[grpc.aio.Channel]:
    """A channel to it."""
    async with open_channel(owner_address) as channel:
        yield channel


@pytest.fixture
def machine(database_url: str, owner_address: str, tmp_path: Path) -> Machine:
    """Directories for an instance."""
    machine = Machine(database_url, owner_address, tmp_path)
    machine.root.mkdir()
    return machine


@pytest.fixture
async def client(machine: Machine) -> AsyncIterator[Client]:
    """A client of a ready instance."""
    async with running(machine) as (client, _):
        yield client


@pytest.fixture
def holder(owner_channel: grpc.aio.Channel) -> Holder:
    """Holds leases of sessions."""
    return Holder(owner_channel)


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    """A fork server."""
    bench = Bench(tmp_path)
    yield bench
    await bench.close()
