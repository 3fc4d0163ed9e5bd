"""What was done while its row was read is not begun again: the row tells of the time before (W2)."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from datetime import timedelta
from pathlib import Path

import pytest
from moorage.common.v1 import provision_pb2
from moorage.workspace.v1 import workspace_pb2

from services.common import failpoints
from services.workspace.store.work import Key, WorkStore
from services.workspace.workspaces import Workspace, WorkspaceState
from tests.conditions import eventually
from tests.gates import Gate, Gates
from tests.workspace.instances import Machine, running


async def test_what_was_done_while_it_was_read_is_not_begun_again(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    gates, looked = Gates(tmp_path / "gates"), asyncio.Event()
    monkeypatch.setitem(failpoints._active, failpoints.ALL, f"gate:{tmp_path}/gates")
    made = gates.hold("workspace.provision.after_make")

    class Late(WorkStore):
        """Gives rows of which there is work when that is over, and tells of the next look."""

        async def take_due(
            self,
            provider: str,
            state: WorkspaceState,
            limit: int,
            again_in: timedelta,
            busy: Collection[Key] = (),
        ) -> list[Workspace]:
            found = await super().take_due(provider, state, limit, again_in, busy)
            if {(each.project, each.workspace_id) for each in found} & set(busy):
                made.release()
                await eventually(lambda: not busy, what="it is done")
                begun.append(gates.hold("workspace.provision.before_make"))
            elif begun:
                looked.set()
            return found

    begun: list[Gate] = []
    monkeypatch.setattr("services.workspace.server.WorkStore", Late)
    async with running(machine) as (client, instance):
        await client.provision(provision=provision_pb2.ProvisionSpec())
        await made.reached()
        async with instance.database.connection() as connection:
            await connection.execute("UPDATE workspace.workspaces SET due_at = clock_timestamp()")
        # Whoever asks for something wakes the worker.
        await client.adopt(machine.supplied(), "w2")
        await looked.wait()
        assert not begun[0].was_reached
        begun[0].release()
        assert (await client.settled()).state == workspace_pb2.WORKSPACE_STATE_READY
