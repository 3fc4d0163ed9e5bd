"""Agents for the tests of this area."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.agents.peers import Agent, connected, demo_command


@pytest.fixture
async def demo(tmp_path: Path) -> AsyncIterator[Agent]:
    """The real demo agent, with a native session in an empty directory."""
    async with connected(*demo_command(), directory=tmp_path) as agent:
        await agent.open(tmp_path)
        yield agent
