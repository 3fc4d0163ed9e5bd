"""What a caller sends to a running command."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Final

from moorage.common.v1.grant_pb2 import Grant
from moorage.workspace.v1 import workspace_pb2

from services.common.errors import InvalidArgument, Unavailable
from services.common.logs import get_logger
from services.fencing.verifier import GrantVerifier
from services.workspace.exec.execs import Exec, Execs, stale
from services.workspace.exec.input import Stdin
from services.workspace.exec.process import Process, ProcessLost
from services.workspace.servicers.frames import check_stdin, signal_of, size_of
from services.workspace.servicers.validity import Validity
from services.workspace.workspaces import resource_of

_log: Final = get_logger(__name__)

Write = Callable[[workspace_pb2.ExecResponse], Awaitable[None]]
_Answer = Callable[[int], workspace_pb2.ExecResponse]


class Conversation:
    """Takes the frames of one stream, in order. A frame that makes no sense ends the exec."""

    def __init__(
        self,
        which: Exec,
        process: Process,
        stdin: Stdin,
        validity: Validity,
        execs: Execs,
        verifier: GrantVerifier,
    ) -> None:
        """Frames are for `process`."""
        self._which = which
        self._process = process
        self._stdin = stdin
        self._validity = validity
        self._execs = execs
        self._verifier = verifier
        self._has_mark = False
        self._asked: asyncio.Queue[tuple[asyncio.Future[int], _Answer]] = asyncio.Queue()

    async def run(self, frames: AsyncIterator[workspace_pb2.ExecRequest]) -> None:
        """Until the caller sends no more, which is not the end of input: a caller that died looks the same."""
        async for frame in frames:
            if frame.HasField("grant"):
                await self._show(frame.grant)
            else:
                self._which.check()
                self._validity.check()
                await self._take(frame)

    async def answer(self, write: Write) -> None:
        """Write the answers to frames that want one. What takes its time holds no other frame up."""
        while True:
            answer, message = await self._asked.get()
            try:
                count = await asyncio.shield(answer)
            except ProcessLost:
                # How the command ended is all that is left to say.
                return
            await write(message(count))

    async def _take(self, frame: workspace_pb2.ExecRequest) -> None:
        match frame.WhichOneof("message"):
            case "stdin":
                await self._stdin.put(check_stdin(frame.stdin))
            case "close_stdin":
                self._stdin.close()
            case "signal":
                self._process.send_signal(signal_of(frame.signal))
            case "resize":
                self._resize(frame.resize)
            case "mark":
                self._has_mark = True
                self._asked.put_nowait((self._process.mark(), _marked))
            case "reap":
                self._reap()
            case "start":
                raise InvalidArgument.of("start", "must be the first message, and only there")
            case _:
                raise InvalidArgument.of("message", "is none that this service knows")

    def _reap(self) -> None:
        if not self._has_mark:
            raise InvalidArgument.of("reap", "needs a mark before it")
        self._asked.put_nowait((self._process.reap(), _reaped))

    def _resize(self, size: workspace_pb2.TerminalSize) -> None:
        if not self._process.streams.has_terminal:
            raise InvalidArgument.of("resize", "needs a command that was started with a terminal")
        self._process.resize(*size_of("resize", size))

    async def _show(self, grant: Grant) -> None:
        try:
            claims = await self._verifier.verify(grant, resource_of(*self._which.session))
        except Unavailable as error:
            # The grants before it still hold, and the next one comes before they end.
            _log.warning("a renewed grant could not be verified", error=str(error))
            return
        highest = self._execs.raise_token(self._which.session, claims.token)
        if claims.token != self._which.token:
            raise stale(self._which.session, min(claims.token, self._which.token), highest)
        self._validity.extend(claims)


def _marked(_: int) -> workspace_pb2.ExecResponse:
    return workspace_pb2.ExecResponse(marked=workspace_pb2.ExecMarked())


def _reaped(killed: int) -> workspace_pb2.ExecResponse:
    return workspace_pb2.ExecResponse(reaped=workspace_pb2.ExecReaped(killed=killed))
