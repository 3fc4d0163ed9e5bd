"""One Exec stream as a caller holds it."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass, field
from typing import Any, Self

import grpc
from moorage.common.v1.grant_pb2 import Grant
from moorage.workspace.v1 import workspace_pb2

from services.common.errors import MoorageError
from services.common.status import from_rpc_error

Call = grpc.aio.StreamStreamCall[workspace_pb2.ExecRequest, workspace_pb2.ExecResponse]
_PIECE = 256 * 1024


@dataclass(slots=True)
class Result:
    """All that a stream said after `started`."""

    stdout: bytes = b""
    stderr: bytes = b""
    ended: workspace_pb2.ExecEnded = field(default_factory=workspace_pb2.ExecEnded)
    error: MoorageError | None = None

    @property
    def how(self) -> tuple[str | None, Any]:
        """Which kind of end, and its value."""
        kind = self.ended.WhichOneof("how")
        return kind, getattr(self.ended, kind) if kind else None


class Stream:
    """Sends frames and reads messages."""

    def __init__(self, call: Call, start: workspace_pb2.ExecStart) -> None:
        self.call = call
        self._start = start
        self.exec_id = ""
        self.pid = 0

    async def start(self) -> Self:
        """Until the command runs; raises the refusal."""
        await self.send(start=self._start)
        message = await self.read()
        assert message is not None
        assert message.HasField("started"), message
        self.exec_id, self.pid = message.started.exec_id, message.started.pid
        return self

    async def send(self, **frame: Any) -> None:
        try:
            await self.call.write(workspace_pb2.ExecRequest(**frame))
        except grpc.aio.AioRpcError as error:
            raise from_rpc_error(error) from error

    async def write(self, data: bytes) -> None:
        for at in range(0, len(data), _PIECE):
            await self.send(stdin=data[at : at + _PIECE])

    async def close_stdin(self) -> None:
        await self.send(close_stdin=workspace_pb2.CloseStdin())

    async def signal(self, name: str) -> None:
        await self.send(signal=workspace_pb2.ExecSignal(name=name))

    async def show(self, grant: Grant) -> None:
        await self.send(grant=grant)

    async def read(self) -> workspace_pb2.ExecResponse | None:
        """The next message, None at the end; raises a refusal."""
        try:
            message = await self.call.read()
        except grpc.aio.AioRpcError as error:
            raise from_rpc_error(error) from error
        return message if isinstance(message, workspace_pb2.ExecResponse) else None

    async def read_until(self, text: bytes) -> bytes:
        """Standard output until it contains `text`."""
        seen = b""
        while text not in seen:
            message = await self.read()
            assert message is not None, seen
            assert not message.HasField("ended"), (seen, message)
            seen += message.stdout
        return seen

    async def result(self, *, half_close: bool = True) -> Result:
        """Read to the end; `half_close` when the command has ended, for which nobody else may be writing."""
        result = Result()
        try:
            while (message := await self.read()) is not None:
                assert not result.ended.WhichOneof("how"), "something came after the end"
                result.stdout += message.stdout
                result.stderr += message.stderr
                result.ended.MergeFrom(message.ended)
                if half_close and message.HasField("ended"):
                    await self.call.done_writing()
        except MoorageError as error:
            result.error = error
        return result


class Streaming:
    """`async with` starts the command, and cuts the stream at the end of the block."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream

    async def __aenter__(self) -> Stream:
        return await self._stream.start()

    async def __aexit__(self, *_: object) -> None:
        self._stream.call.cancel()

    async def run(self, stdin: bytes = b"") -> Result:
        """Start, give it all input, and read all output meanwhile."""
        async with self as stream, asyncio.TaskGroup() as group:
            reading = group.create_task(stream.result(half_close=False))
            # The command may have ended before its input has, and the stream with it; the reader knows.
            with contextlib.suppress(MoorageError):
                await stream.write(stdin)
                await stream.close_stdin()
                await stream.call.done_writing()
        return reading.result()

    async def refusal(self) -> MoorageError:
        """Why it cannot be started."""
        try:
            async with self:
                raise AssertionError("it was started")
        except MoorageError as error:
            return error
