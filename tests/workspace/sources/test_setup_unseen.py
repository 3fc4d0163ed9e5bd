"""A set-up command whose time was over before anybody heard of its end (W10)."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from services.common.clock import ManualClock
from services.workspace.exec.commands import Commands
from services.workspace.exec.execs import Execs
from services.workspace.exec.forkserver import ForkServer
from services.workspace.providers.local import LocalProvider
from services.workspace.providers.registry import Refused
from services.workspace.server import WorkspaceInstance
from services.workspace.sources.setup import SettingUp
from services.workspace.sources.wanted import Setup
from services.workspace.specs import Spec
from services.workspace.store.sources import SourceStore
from services.workspace.store.workspaces import WorkspaceStore
from services.workspace.workspaces import Workspace
from tests.conditions import eventually
from tests.workspace.instances import PROJECT, Machine, running

# It stops what watches over it, so that nobody is told of anything.
SCRIPT = "kill -STOP $PPID; echo $PPID > ../watcher; sleep 1000"


@pytest.fixture
async def instance(machine: Machine) -> AsyncIterator[WorkspaceInstance]:
    """With a workspace w1."""
    async with running(machine) as (client, instance):
        await client.make()
        yield instance


@pytest.fixture
async def workspace(instance: WorkspaceInstance) -> Workspace:
    """It has a set-up command of a minute."""
    stored = await WorkspaceStore(instance.database).get(PROJECT, "w1")
    return replace(stored, spec=Spec(setup=Setup(("sh", "-c", SCRIPT), (), (), 60.0, "")))


@pytest.fixture
async def provider(machine: Machine, instance: WorkspaceInstance) -> AsyncIterator[LocalProvider]:
    """With a fork server of its own."""
    fork_server = ForkServer()
    fork_server.prepare(instance.instance.marker)
    yield LocalProvider("", "", str(machine.state), True, fork_server, {"PATH": os.environ["PATH"]})
    await fork_server.close()


async def test_one_that_lasted_too_long_has_failed_whoever_saw_it_end(
    instance: WorkspaceInstance, workspace: Workspace, provider: LocalProvider
) -> None:
    clock, execs = ManualClock(), Execs()
    setting_up = SettingUp(Commands(instance.instance, execs, clock), SourceStore(instance.database))
    watcher = Path(workspace.root).with_name("watcher")
    beside = asyncio.create_task(execs.run())
    ran = asyncio.create_task(setting_up.run(workspace, provider))
    try:
        await eventually(lambda: watcher.exists() and watcher.read_text() != "", what="it runs")
        await clock.advance(60.0)
        os.kill(int(watcher.read_text()), signal.SIGKILL)
        with pytest.raises(Refused, match="lasted longer than 60 s"):
            await ran
    finally:
        ran.cancel()
        beside.cancel()
        await asyncio.wait([ran, beside])
