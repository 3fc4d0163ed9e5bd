"""An engine for a module, a wharf for a test."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest_asyncio

from tests.engines import PrivateEngine, private_engine
from tests.faults.wharf import Wharf, wharf
from tests.workspace.instances import Machine, running_owner


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def engine() -> AsyncIterator[PrivateEngine]:
    """To be killed and paused; each test leaves it running."""
    async with private_engine() as engine:
        yield engine


@pytest_asyncio.fixture(loop_scope="module")
async def ground(engine: PrivateEngine, database_url: str, tmp_path: Path) -> AsyncIterator[Wharf]:
    """A service that commands it."""
    async with running_owner(database_url) as owner:
        machine = Machine(database_url, owner, tmp_path)
        machine.root.mkdir()
        async with wharf(machine, engine) as made:
            yield made
