"""A process in a workspace, over one Exec stream; its stdin and stdout are the agent's."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import grpc
from moorage.common.v1.grant_pb2 import Grant
from moorage.workspace.v1 import workspace_pb2
from moorage.workspace.v1.workspace_pb2_grpc import WorkspaceServiceStub

from services.common.channels import Channels
from services.common.clock import Clock
from services.common.errors import Cancelled, DependencyUnavailable, MoorageError
from services.common.status import from_dependency
from services.runner.clients.outgoing import ExecCall, Outgoing, fail, new_future, process_ended
from services.runner.endings import UNCERTAIN
from services.runner.interrupts import background
from services.runner.pipes import Pipe, Tail

if TYPE_CHECKING:
    from moorage.workspace.v1.workspace_pb2_grpc import WorkspaceServiceAsyncStub

_CHUNK: Final = 64 * 1024
_GOODBYE: Final = 1.0


@dataclass(frozen=True, slots=True)
class ProcessEnd:
    """How a process ended: an exit code, or a signal, or nobody knows because of an error.

    `out_of_memory`: something of it was killed because its workspace's memory was used up.
    """

    exit_code: int | None = None
    signal: str = ""
    error: MoorageError | None = None
    out_of_memory: bool = False

    @property
    def confirmed(self) -> bool:
        """Whether the whole process group is known to be dead: a refusal says so, a cut stream does not."""
        return not isinstance(self.error, UNCERTAIN)


class Process:
    """One task reads the stream and another writes it, so that no caller's cancellation cuts it."""

    def __init__(self, call: ExecCall, clock: Clock, *, merged: bool = False) -> None:
        """Nothing has been sent on the call yet. `merged`: what it says on stderr is read with stdout."""
        self._call = call
        self._merged = merged
        self._clock = clock
        self._stdin = Outgoing(call)
        self._stdout = Pipe()
        self._stderr = Tail()
        self._started: asyncio.Future[workspace_pb2.ExecStarted] = new_future()
        self._ended: asyncio.Future[ProcessEnd] = new_future()
        self._over: asyncio.Future[None] = new_future()
        self._asked: deque[asyncio.Future[int]] = deque()
        self._listening_since: float | None = None
        self._cut = False

    @property
    def stderr(self) -> str:
        """The last that it said on stderr."""
        return self._stderr.text

    @property
    def end(self) -> ProcessEnd | None:
        """How it ended; None while it runs."""
        return self._ended.result() if self._ended.done() else None

    @property
    def silence(self) -> float:
        """Seconds for which nothing came; 0 while nobody takes what comes."""
        since = self._listening_since
        return 0.0 if since is None else self._clock.boottime() - since

    async def started(self) -> workspace_pb2.ExecStarted:
        """Wait until it runs; raises what the workspace says when it could not be started."""
        return await asyncio.shield(self._started)

    async def read(self) -> bytes:
        """The next of stdout; b"" at its end."""
        return await self._stdout.get()

    async def write(self, data: bytes) -> None:
        """Send to stdin, whole even when the caller is cancelled; ConnectionError when it has ended.

        Returns when the transport took it, so a process that does not read slows its caller down.
        """
        pieces = [data[at : at + _CHUNK] for at in range(0, len(data), _CHUNK)]
        await self._stdin.send(*(workspace_pb2.ExecRequest(stdin=piece) for piece in pieces))

    async def close_stdin(self) -> None:
        """Send the end of input."""
        await self._stdin.send(workspace_pb2.ExecRequest(close_stdin=workspace_pb2.CloseStdin()))

    async def signal(self, name: str) -> None:
        """Send a signal, e.g. `SIGTERM`, to the process group, before input that waits."""
        request = workspace_pb2.ExecRequest(signal=workspace_pb2.ExecSignal(name=name))
        await asyncio.shield(self._stdin.send_first(request))

    async def mark(self) -> None:
        """Draw a line: what it starts from now on is younger; ConnectionError when it has ended."""
        await self._ask(workspace_pb2.ExecRequest(mark=workspace_pb2.ExecMark()))

    async def reap(self) -> int:
        """Have its descendants younger than the newest mark killed, how many; ConnectionError as `mark`."""
        return await self._ask(workspace_pb2.ExecRequest(reap=workspace_pb2.ExecReap()))

    def show(self, grant: Grant) -> None:
        """Show a renewed grant, before anything that waits to be sent."""
        self._stdin.send_first(workspace_pb2.ExecRequest(grant=grant))

    def discard(self) -> None:
        """Nobody reads stdout any more."""
        self._stdout.discard()

    async def wait(self) -> ProcessEnd:
        """Wait for the end, which comes after all output: somebody must read, or have it discarded."""
        return await asyncio.shield(self._ended)

    def cut(self) -> None:
        """Cut the stream, with which the process group dies; nobody confirms it."""
        self._cut = True
        self._call.cancel()

    async def run(self, start: workspace_pb2.ExecStart) -> None:
        """Start it and pump both directions until it has ended and the stream is over."""
        async with background(self._stdin.run(start)):
            end = await self._receive()
            self._settle(end)
            if end.error is None:
                self._stdin.finish()
                await self._until_over()

    async def over(self) -> None:
        """Of a process that told its end, wait shortly until its stream is over.

        One that is cut before its status came is a cancelled call to whoever counts calls.
        """
        if self.end is not None and self.end.error is None and not self._cut:
            await asyncio.wait({self._over}, timeout=_GOODBYE)

    def _settle(self, end: ProcessEnd) -> None:
        self._ended.set_result(end)
        self._stdout.close()
        while self._asked:
            fail(self._asked.popleft(), process_ended())
        if not self._started.done():
            error = end.error or DependencyUnavailable(dependency="workspace", cause="it never started")
            fail(self._started, error)

    async def _ask(self, request: workspace_pb2.ExecRequest) -> int:
        """Answers come in the order of their questions, which are not held up by input that waits."""
        if self._ended.done():
            raise process_ended()
        answer = new_future()
        self._asked.append(answer)
        self._stdin.send_first(request)
        count: int = await asyncio.shield(answer)
        return count

    async def _receive(self) -> ProcessEnd:
        try:
            return await self._until_end()
        except grpc.aio.AioRpcError as error:
            return ProcessEnd(error=from_dependency("workspace", error))
        except asyncio.CancelledError:
            if not self._cut:
                raise
            return ProcessEnd(error=Cancelled())
        finally:
            self._listening_since = None

    async def _until_over(self) -> None:
        with contextlib.suppress(grpc.aio.AioRpcError):
            while isinstance(await self._call.read(), workspace_pb2.ExecResponse):
                pass
        self._over.set_result(None)

    async def _until_end(self) -> ProcessEnd:
        while True:
            self._listening_since = self._clock.boottime()
            message = await self._call.read()
            self._listening_since = None
            if not isinstance(message, workspace_pb2.ExecResponse):
                cause = "the stream ended before the process"
                return ProcessEnd(error=DependencyUnavailable(dependency="workspace", cause=cause))
            if message.HasField("ended"):
                return end_of(message.ended)
            await self._take(message)

    async def _take(self, message: workspace_pb2.ExecResponse) -> None:
        if message.HasField("stdout"):
            await self._stdout.put(message.stdout)
        elif message.HasField("stderr") and self._merged:
            await self._stdout.put(message.stderr)
        elif message.HasField("stderr"):
            self._stderr.add(message.stderr)
        elif message.HasField("started") and not self._started.done():
            self._started.set_result(message.started)
        elif message.HasField("marked") or message.HasField("reaped"):
            self._asked.popleft().set_result(message.reaped.killed)


class Processes:
    """Starts processes in workspaces."""

    def __init__(self, channels: Channels, clock: Clock) -> None:
        """Channels to the workspace instances."""
        self._channels = channels
        self._clock = clock

    @asynccontextmanager
    async def start(
        self, endpoint: str, start: workspace_pb2.ExecStart, *, merged: bool = False
    ) -> AsyncIterator[Process]:
        """A process that lives as long as the block at most; `started` tells whether it began.

        `merged`: stdout and stderr are one output.
        """
        stub: WorkspaceServiceAsyncStub = WorkspaceServiceStub(self._channels.to(endpoint))
        call = stub.Exec()
        process = Process(call, self._clock, merged=merged)
        try:
            async with background(process.run(start)):
                yield process
                await process.over()
        finally:
            call.cancel()


def end_of(ended: workspace_pb2.ExecEnded) -> ProcessEnd:
    """What the workspace tells."""
    match ended.WhichOneof("how"):
        case "exit_code":
            return ProcessEnd(exit_code=ended.exit_code, out_of_memory=ended.out_of_memory)
        case "signal":
            return ProcessEnd(signal=ended.signal, out_of_memory=ended.out_of_memory)
        case how:
            cause = f"the process ended by {how or 'nothing'}"
            return ProcessEnd(error=DependencyUnavailable(dependency="workspace", cause=cause))
