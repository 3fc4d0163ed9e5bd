"""What a caller sends to a running command."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Final

from moorage.common.v1.grant_pb2 import Grant
from moorage.workspace.v1 import workspace_pb2

from services.common.errors import InvalidArgument, Unavailable
from services.common.logs import get_logger
from services.fencing.verifier import GrantVerifier
from services.workspace.exec.execs import Exec, Execs, stale
from services.workspace.exec.forkserver import resize
from services.workspace.exec.input import Stdin
from services.workspace.exec.process import Process
from services.workspace.servicers.frames import check_stdin, signal_of, size_of
from services.workspace.servicers.validity import Validity
from services.workspace.workspaces import resource_of

_log: Final = get_logger(__name__)


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

    async def run(self, frames: AsyncIterator[workspace_pb2.ExecRequest]) -> None:
        """Until the caller sends no more, which is not the end of input: a caller that died looks the same."""
        async for frame in frames:
            if frame.HasField("grant"):
                await self._show(frame.grant)
            else:
                self._which.check()
                self._validity.check()
                await self._take(frame)

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
            case "start":
                raise InvalidArgument.of("start", "must be the first message, and only there")
            case _:
                raise InvalidArgument.of("message", "is none that this service knows")

    def _resize(self, size: workspace_pb2.TerminalSize) -> None:
        if not self._process.streams.has_terminal:
            raise InvalidArgument.of("resize", "needs a command that was started with a terminal")
        resize(self._process.streams.stdout.fd, *size_of("resize", size))

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
