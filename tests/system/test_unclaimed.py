"""A session service that dies between a workspace's intent and its session's row (W2)."""

from __future__ import annotations

import signal
from collections.abc import AsyncIterator
from pathlib import Path

import grpc
import pytest
from moorage.common.v1 import provision_pb2
from moorage.workspace.v1 import workspace_pb2

from tests.conditions import eventually
from tests.databases import execute, fetch_value
from tests.system.fleet import Fleet
from tests.workspace.garbage import Found, told
from tests.workspace.instances import Client

pytestmark = pytest.mark.timeout(120)

MADE = provision_pb2.ProvisionSpec()


@pytest.fixture
async def fleet(database_url: str, tmp_path: Path) -> AsyncIterator[Fleet]:
    """A session service, and a workspace that knows where it is."""
    async with Fleet(database_url, tmp_path) as fleet:
        await fleet.start_workspace()
        await fleet.start_session()
        await _end(fleet, "workspace", signal.SIGTERM)
        again = await fleet.start(
            "workspace-again",
            *("--database-url", database_url, "--owner-address", fleet.stack.owner.endpoint),
            *("--root", str(fleet.root), "--state-directory", str(fleet.directory / "state")),
            *("--session-address", fleet.addresses["session"][0]),
            listen=fleet.workspace_address,
        )
        await again.logged("ready")
        yield fleet


async def _end(fleet: Fleet, name: str, number: signal.Signals) -> None:
    fleet.processes[name].send(number)
    await fleet.processes[name].exit_code()


async def test_its_workspace_is_removed_and_those_of_stored_sessions_are_not(fleet: Fleet) -> None:
    collector = Client.at(fleet.workspace_address)
    async with fleet.talks() as talks:
        await talks.create("stored", provision=MADE, wait_ready=True)
        dying = fleet.gates.hold("session.create_session.after_provision", "", "kill")
        with pytest.raises(grpc.aio.AioRpcError):
            await talks.create("never", provision=MADE)
    assert await fleet.processes["session"].exit_code() == -signal.SIGKILL
    dying.release()
    await eventually(lambda: _state(fleet, "never", "READY"))
    await execute(
        fleet.database_url,
        "UPDATE workspace.workspaces SET created_at = created_at - interval '11 minutes'",
    )
    # Nobody can say that its session is not stored.
    assert not (await collector.collect()).garbage
    await fleet.start_session()
    workspace_id = await fetch_value(
        fleet.database_url, "SELECT workspace_id FROM workspace.workspaces WHERE session_id = 'never'"
    )
    found: list[Found] = []

    async def is_told() -> bool:
        """Once the collector has found its way back to the session service."""
        found.extend(told(await collector.collect()))
        return bool(found)

    await eventually(is_told)
    assert found == [("unclaimed", workspace_id, True)]
    removed = await collector.settled(workspace_id)
    assert removed.state == workspace_pb2.WORKSPACE_STATE_DELETED
    assert not Path(removed.root).exists()
    assert await _state(fleet, "stored", "READY")
    assert not (await collector.collect()).garbage


async def _state(fleet: Fleet, session_id: str, state: str) -> bool:
    query = "SELECT state FROM workspace.workspaces WHERE session_id = $1"
    return bool(await fetch_value(fleet.database_url, query, session_id) == state)
