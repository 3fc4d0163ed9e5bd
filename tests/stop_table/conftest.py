"""The services that the cells share: one set for most moments, one with short deadlines for the others."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from services.common import failpoints
from services.common.channels import open_channel
from tests.databases import cloned
from tests.gates import Gates
from tests.runner.parts import Stack
from tests.runner.talks import Talks
from tests.stop_table.cells import Harbour

# What is given up on is over soon, but outlasts the lease of a runner that is dead.
SHORT = {"stop_budget": 0.5, "stop_kill_after": 0.5, "stop_margin": 3.0, "watchdog_interval": 0.5}


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def gates(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Gates]:
    """All failpoints of this process."""
    gates = Gates(tmp_path_factory.mktemp("gates"))
    with pytest.MonkeyPatch.context() as patch:
        for name, action in failpoints.parse(gates.failpoints).items():
            patch.setitem(failpoints._active, name, action)
        yield gates


@contextlib.asynccontextmanager
async def harbour(
    postgres_url: str, template: str, gates: Gates, directory: Path, changes: Mapping[str, Mapping[str, Any]]
) -> AsyncIterator[Harbour]:
    """Owner, workspace and session with a database of their own; runners are not there yet."""
    root = directory / "root"
    root.mkdir()
    async with cloned(postgres_url, template) as url:
        stack = Stack(url, root, directory / "state", changes)
        await stack.start()
        try:
            async with open_channel(stack.session.endpoint) as channel:
                yield Harbour(stack, Talks(channel), gates, root, url)
        finally:
            await stack.stop()


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def usual(
    postgres_url: str, template_database: str, gates: Gates, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Harbour]:
    """With a runner; everything has the time that it has by default."""
    directory = tmp_path_factory.mktemp("usual")
    async with harbour(postgres_url, template_database, gates, directory, {}) as there:
        await there.stack.add_runner()
        yield there


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def impatient(
    postgres_url: str, template_database: str, gates: Gates, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Harbour]:
    """Without a runner; a Stop that is not carried out is soon given up on."""
    directory = tmp_path_factory.mktemp("impatient")
    async with harbour(postgres_url, template_database, gates, directory, {"session": SHORT}) as there:
        yield there
