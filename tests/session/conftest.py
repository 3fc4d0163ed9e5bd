"""The session service on real neighbours: owner, workspace and PostgreSQL, all in this process."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import grpc
import pytest

from services.common.channels import open_channel
from services.common.clock import SystemClock
from services.common.database import Database
from services.fencing.keys import KeyCache
from services.session.server import SessionReplica
from tests.session.clients import Client
from tests.session.desks import Desk, system_desk
from tests.session.fake_workspaces import FakeWorkspace, fake_workspace
from tests.session.leasing import Taker
from tests.session.places import Places, running_owner, running_session, running_workspace
from tests.session.stages import Stage, staged


@pytest.fixture
async def owner_address(database_url: str) -> AsyncIterator[str]:
    """A ready owner."""
    async with running_owner(database_url) as address:
        yield address


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """The directory in which supplied directories must lie."""
    root = tmp_path / "root"
    root.mkdir()
    return root


@pytest.fixture
async def places(database_url: str, owner_address: str, tmp_path: Path, root: Path) -> AsyncIterator[Places]:
    """Where everything that the session service needs is found; `root` is the default directory."""
    workspace = running_workspace(
        database_url, owner_address, root=root, default_directory=root, state_directory=tmp_path / "state"
    )
    async with workspace as address:
        yield Places(database_url, owner_address, address)


@pytest.fixture
async def replica(places: Places) -> AsyncIterator[SessionReplica]:
    """A ready replica of the session service."""
    async with running_session(places) as replica:
        yield replica


@pytest.fixture
async def channel(replica: SessionReplica) -> AsyncIterator[grpc.aio.Channel]:
    """To the clients' port."""
    async with open_channel(replica.endpoint) as channel:
        yield channel


@pytest.fixture
def client(channel: grpc.aio.Channel) -> Client:
    """A client of the project `default`."""
    return Client(channel)


@pytest.fixture
async def desk(database: Database) -> AsyncIterator[Desk]:
    """A journal whose grants the test signs."""
    async with system_desk(database).serving() as desk:
        yield desk


@pytest.fixture
async def owner(owner_address: str) -> AsyncIterator[grpc.aio.Channel]:
    """To a ready owner."""
    async with open_channel(owner_address) as channel:
        yield channel


@pytest.fixture
def taker(owner: grpc.aio.Channel) -> Taker:
    """Takes leases in anybody's name."""
    return Taker(owner)


@pytest.fixture
async def leased_desk(database: Database, owner: grpc.aio.Channel) -> AsyncIterator[Desk]:
    """A journal that takes the owner's grants."""
    keys = KeyCache(owner, SystemClock())
    await keys.refresh()
    async with Desk(database, SystemClock(), owner_keys=keys).serving() as desk:
        yield desk


@pytest.fixture
async def workspace() -> AsyncIterator[FakeWorkspace]:
    """A workspace service that records which fences it raises."""
    async with fake_workspace() as workspace:
        yield workspace


@pytest.fixture
async def stage(places: Places, replica: SessionReplica, client: Client) -> AsyncIterator[Stage]:
    """A client, and a runner that holds the session s1."""
    async with staged(places, replica, client) as stage:
        yield stage
