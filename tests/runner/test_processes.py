"""Processes over real Exec streams: whole writes, back-pressure, ends, fences (T5, F6)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager

import pytest
from moorage.workspace.v1.workspace_pb2 import ExecStart

from services.common.channels import Channels
from services.common.clock import SystemClock
from services.common.errors import Aborted, FailedPrecondition
from services.fencing.leases import HeldLease
from services.fencing.loop import LeaseLoop, mint_holder
from services.runner.clients.processes import Process, Processes
from services.runner.clients.workspaces import Workspaces
from services.runner.interrupts import background
from tests.conditions import eventually
from tests.runner.parts import Stack
from tests.runner.talks import Talks

SESSION = "projects/default/sessions/s"
LABELS = {"role": "runner"}


class Desk:
    """A held session and its workspace."""

    def __init__(self, stack: Stack, channels: Channels, workspace_id: str) -> None:
        clock = SystemClock()
        self.endpoint = stack.workspace.endpoint
        self.workspace_id = workspace_id
        self.leases = LeaseLoop(mint_holder("desk"), channels.to(stack.owner.endpoint), clock)
        self.workspaces = Workspaces(channels, self.endpoint, 10.0)
        self.processes = Processes(channels, clock)

    async def take(self, ttl: float = 15.0) -> HeldLease:
        """The session's lease, shown to the workspace."""
        lease = await self.leases.acquire(SESSION, ttl=ttl, labels=LABELS)
        await self.workspaces.claim(self.endpoint, lease.grant, "default", self.workspace_id)
        return lease

    def run(self, lease: HeldLease, *command: str) -> AbstractAsyncContextManager[Process]:
        """A process under the lease."""
        start = ExecStart(
            grant=lease.grant,
            project="default",
            workspace_id=self.workspace_id,
            command=command,
            inherit_environment=["PATH"],
        )
        return self.processes.start(self.endpoint, start)


@pytest.fixture
async def desk(stack: Stack, talks: Talks) -> AsyncIterator[Desk]:
    """Of a session without turns."""
    workspace_id = (await talks.create("s")).workspace.workspace_id
    async with Channels() as channels:
        desk = Desk(stack, channels, workspace_id)
        async with background(desk.leases.run()):
            yield desk


async def output(process: Process) -> bytes:
    """All of stdout."""
    chunks = []
    while chunk := await process.read():
        chunks.append(chunk)
    return b"".join(chunks)


async def test_input_output_and_how_it_ended(desk: Desk) -> None:
    lease = await desk.take()
    async with desk.run(lease, "sh", "-c", "cat; echo to stderr >&2; exit 5") as process:
        assert (await process.started()).pid > 0
        await process.write(b"through\n")
        await process.close_stdin()
        assert await output(process) == b"through\n"
        end = await process.wait()
    assert (end.exit_code, end.signal, end.error) == (5, "", None)
    assert process.stderr == "to stderr"


async def test_a_cancelled_writer_neither_cuts_the_stream_nor_its_message(desk: Desk) -> None:
    # More than all buffers between here and a process hold.
    data = bytes(range(256)) * 128 * 1024
    lease = await desk.take()
    async with desk.run(lease, "cat") as process:
        writing = asyncio.create_task(process.write(data))
        # Nobody reads, so the writer waits.
        done, _ = await asyncio.wait({writing}, timeout=1.0)
        assert not done
        writing.cancel()
        read = asyncio.create_task(output(process))
        await process.write(b"the end")
        await process.close_stdin()
        assert await read == data + b"the end"


async def test_a_cancelled_reader_does_not_cut_the_stream(desk: Desk) -> None:
    lease = await desk.take()
    async with desk.run(lease, "cat") as process:
        await process.started()
        reading = asyncio.create_task(process.read())
        await asyncio.sleep(0)
        reading.cancel()
        await process.write(b"still here")
        assert await process.read() == b"still here"


async def test_a_grant_that_is_renewed_at_once_does_not_come_before_the_start(desk: Desk) -> None:
    lease = await desk.take()
    async with desk.run(lease, "true") as process:
        process.show(lease.grant)
        assert (await process.wait()).exit_code == 0


async def test_writing_to_a_process_that_has_ended_is_an_error(desk: Desk) -> None:
    lease = await desk.take()
    async with desk.run(lease, "true") as process:
        assert (await process.wait()).exit_code == 0
        with pytest.raises(ConnectionError):
            await process.write(b"anybody?")


async def test_a_stream_whose_end_was_told_is_no_cancelled_call(
    desk: Desk, caplog: pytest.LogCaptureFixture
) -> None:
    def codes() -> list[str]:
        fields = [vars(record) for record in caplog.records]
        return [each["code"] for each in fields if str(each.get("method", "")).endswith("/Exec")]

    caplog.set_level("INFO")
    lease = await desk.take()
    async with desk.run(lease, "true") as process:
        await process.wait()
    await eventually(lambda: bool(codes()))
    assert codes() == ["OK"]


async def test_a_command_that_does_not_exist_says_so(desk: Desk) -> None:
    lease = await desk.take()
    async with desk.run(lease, "no-such-command") as process:
        with pytest.raises(FailedPrecondition, match="no-such-command"):
            await process.started()
        end = await process.wait()
    assert end.error is not None
    assert end.confirmed


async def test_a_signal_reaches_a_process_that_does_not_read(desk: Desk) -> None:
    lease = await desk.take()
    async with desk.run(lease, "sleep", "600") as process:
        await process.started()
        await process.write(b"x" * 512 * 1024)
        await process.signal("SIGTERM")
        assert (await process.wait()).signal == "SIGTERM"


async def test_silence_is_counted_while_it_is_listened_to_and_not_while_it_is_kept_from_speaking(
    desk: Desk,
) -> None:
    lease = await desk.take()
    async with desk.run(lease, "sleep", "600") as mute, desk.run(lease, "yes") as chatty:
        await eventually(lambda: mute.silence > 0.3)
        # Nobody reads: it would speak if it could.
        await eventually(lambda: chatty.silence == 0.0)
        assert chatty.silence == 0.0


async def test_a_process_lives_on_renewed_grants_and_not_without(desk: Desk) -> None:
    lease = await desk.take(ttl=2.0)
    async with desk.run(lease, "sleep", "600") as shown, desk.run(lease, "sleep", "600") as forgotten:
        with lease.followed_by(shown.show):
            end = await forgotten.wait()
            assert end.error is not None
            assert end.error.reason_name == "LEASE_EXPIRED"
            assert end.confirmed
            assert shown.end is None


async def test_a_higher_token_ends_it(desk: Desk) -> None:
    lease = await desk.take()
    async with desk.run(lease, "sleep", "600") as process:
        await process.started()
        await desk.leases.release(lease)
        await desk.take()
        end = await process.wait()
    assert isinstance(end.error, Aborted)
    assert end.error.reason_name == "STALE_OWNER"
