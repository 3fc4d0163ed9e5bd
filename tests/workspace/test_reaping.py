"""Marks and reaping through Exec (S8); what they kill is tried in `conformance`."""

from __future__ import annotations

import pytest
from moorage.common.v1.grant_pb2 import Grant
from moorage.workspace.v1 import workspace_pb2

from services.common.errors import InvalidArgument
from tests.workspace.instances import Client, Holder, Machine
from tests.workspace.processes import is_alive


@pytest.fixture
async def grant(client: Client, holder: Holder, machine: Machine) -> Grant:
    """Of the session whose workspace is ready."""
    await client.adopt(machine.supplied())
    return await holder.acquire()


async def test_a_caller_draws_a_line_and_has_the_younger_killed_while_output_flows(
    client: Client, grant: Grant
) -> None:
    flood = "i=0; while [ $i -lt 20000 ]; do i=$((i+1)); echo a line; done"
    script = f"read -r go; setsid sleep 600 & echo child $!; read -r go; {flood}; read -r go"
    async with client.exec(grant, "sh", "-c", script) as stream:
        await stream.send(mark=workspace_pb2.ExecMark())
        message = await stream.read()
        assert message is not None
        assert message.HasField("marked")
        await stream.write(b"go\n")
        child = int((await stream.read_until(b"\n")).split()[1])
        await stream.write(b"go\n")
        await stream.send(reap=workspace_pb2.ExecReap())
        killed = size = 0
        while not killed or size < 20_000 * 7:
            message = await stream.read()
            assert message is not None
            size += len(message.stdout)
            killed += message.reaped.killed
        assert killed == 1
        assert not is_alive(child)
        assert is_alive(stream.pid)


async def test_reaping_without_a_mark_is_refused(client: Client, grant: Grant) -> None:
    async with client.exec(grant, "cat") as stream:
        await stream.send(reap=workspace_pb2.ExecReap())
        error = (await stream.result()).error
    assert isinstance(error, InvalidArgument)
    assert [violation.field for violation in error.violations] == ["reap"]
