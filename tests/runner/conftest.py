"""A runner on real neighbours: owner, workspace, session and PostgreSQL, all in this process."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from services.common import failpoints
from services.common.channels import open_channel
from tests.gates import Gates
from tests.runner.moments import Moments
from tests.runner.parts import Stack
from tests.runner.talks import Talks


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Where agents work."""
    root = tmp_path / "root"
    root.mkdir()
    return root


@pytest.fixture
def changes() -> dict[str, dict[str, Any]]:
    """Settings by service that differ from those of `Stack`; tests override this."""
    return {}


@pytest.fixture
async def stack(
    database_url: str, root: Path, tmp_path: Path, changes: dict[str, dict[str, Any]]
) -> AsyncIterator[Stack]:
    """Everything but runners."""
    stack = Stack(database_url, root, tmp_path / "state", changes)
    await stack.start()
    yield stack
    await stack.stop()


@pytest.fixture
async def channel(stack: Stack) -> AsyncIterator[grpc.aio.Channel]:
    """To the session service."""
    async with open_channel(stack.session.endpoint) as channel:
        yield channel


@pytest.fixture
def talks(channel: grpc.aio.Channel) -> Talks:
    """A client of the session service."""
    return Talks(channel)


@pytest.fixture
def moments(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Moments:
    """Failpoints of this process."""
    directory = tmp_path / "moments"
    directory.mkdir()
    return Moments(monkeypatch, directory)


@pytest.fixture
def gates(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Gates:
    """Failpoints of all services of this process."""
    gates = Gates(tmp_path / "gates")
    for name, action in failpoints.parse(gates.failpoints).items():
        monkeypatch.setitem(failpoints._active, name, action)
    return gates
