"""A command and everything it started, as the instance sees it through its shim."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import socket
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from services.workspace.exec.pipes import ReadEnd, WriteEnd

_RECEIVE: Final = 4096


class StartFailed(Exception):
    """The command could not be started; the text says why."""


class ShimLost(Exception):
    """The shim died before it had reported: what lives on has to be looked for."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a command ended. Exactly one of the two numbers is there."""

    exit_code: int | None
    signal: int | None
    killed: bool
    """The command still ran when it was to be killed, and the kill ended it."""


@dataclass(frozen=True, slots=True)
class Streams:
    """The instance's ends of the command's standard streams; a terminal's output is all `stdout`."""

    stdin: WriteEnd
    stdout: ReadEnd
    stderr: ReadEnd | None

    @property
    def has_terminal(self) -> bool:
        """Whether all three are one terminal."""
        return self.stderr is None

    def close(self) -> None:
        """Close all ends."""
        for end in (self.stdin, self.stdout, self.stderr):
            if end is not None:
                end.close()


class Process:
    """One exec's processes. `ended` resolves when all of them are dead, or fails with ShimLost."""

    def __init__(self, connection: socket.socket, streams: Streams) -> None:
        """Listen to the shim."""
        connection.setblocking(False)
        self.streams = streams
        self._connection = connection
        self._received = b""
        self._sending = False
        self._over = False
        self._asked: deque[asyncio.Future[int]] = deque()
        self._loop = asyncio.get_running_loop()
        self.started: asyncio.Future[int] = self._loop.create_future()
        self.ended: asyncio.Future[Outcome] = self._loop.create_future()
        for future in (self.started, self.ended):
            future.add_done_callback(_retrieve)
        self._loop.add_reader(connection, self._on_readable)

    async def start(self, command: Sequence[str], environment: Mapping[str, str], *, terminal: bool) -> int:
        """Say what to run; the process id of the group's leader. StartFailed says why not."""
        request = {"command": list(command), "environment": dict(environment), "terminal": terminal}
        self._sending = True
        try:
            await self._loop.sock_sendall(self._connection, json.dumps(request).encode() + b"\n")
        except OSError as error:
            raise StartFailed(f"the shim is gone: {error}") from error
        finally:
            self._sending = False
            self._close_if_over()
        return await asyncio.shield(self.started)

    def send_signal(self, number: int) -> None:
        """A signal for the group; nothing when the command has ended."""
        with contextlib.suppress(OSError):
            self._connection.send(json.dumps({"signal": number}).encode() + b"\n")

    def mark(self) -> asyncio.Future[int]:
        """Draw a line; done, with the number of processes there are, when what follows is younger."""
        return self._ask({"mark": True})

    def reap(self) -> asyncio.Future[int]:
        """Have what is younger than the newest mark killed; done, with their number, when they are dead."""
        return self._ask({"reap": True})

    def kill(self) -> None:
        """Have everything killed. Never waits, never fails; `ended` tells when it is done."""
        with contextlib.suppress(OSError):
            self._connection.shutdown(socket.SHUT_WR)

    def _ask(self, order: dict[str, bool]) -> asyncio.Future[int]:
        """The answers come in the order of the questions; ShimLost when none can come any more."""
        answer: asyncio.Future[int] = self._loop.create_future()
        answer.add_done_callback(_retrieve)
        self._asked.append(answer)
        try:
            self._connection.send(json.dumps(order).encode() + b"\n")
        except OSError:
            self._leave_unanswered()
        return answer

    def _leave_unanswered(self) -> None:
        while self._asked:
            self._asked.popleft().set_exception(ShimLost())

    def _on_readable(self) -> None:
        try:
            data = self._connection.recv(_RECEIVE)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        *lines, self._received = (self._received + data).split(b"\n")
        for line in lines:
            self._on_message(json.loads(line))
        if not data or self.ended.done():
            self._on_end()

    def _on_message(self, message: dict[str, Any]) -> None:
        if "started" in message:
            self.started.set_result(message["started"])
        elif "failed" in message:
            self.started.set_exception(StartFailed(message["failed"]))
            self.ended.set_result(Outcome(None, None, killed=True))
        elif "status" not in message:
            self._asked.popleft().set_result(message["marked"] if "marked" in message else message["reaped"])
        elif not self.ended.done():
            self.ended.set_result(_outcome(message["status"], killed=message["killed"]))

    def _on_end(self) -> None:
        self._loop.remove_reader(self._connection)
        self._over = True
        self._close_if_over()
        self._leave_unanswered()
        if not self.started.done():
            self.started.set_exception(StartFailed("the shim ended before the command was started"))
        if not self.ended.done():
            self.ended.set_exception(ShimLost())

    def _close_if_over(self) -> None:
        """Not under a send that waits for room: that one is woken up, and closes."""
        if self._over and self._sending:
            with contextlib.suppress(OSError):
                self._connection.shutdown(socket.SHUT_RDWR)
        elif self._over:
            self._connection.close()


def _outcome(status: int, *, killed: bool) -> Outcome:
    code = os.waitstatus_to_exitcode(status)
    if code < 0:
        return Outcome(None, -code, killed=killed and -code == signal.SIGKILL)
    return Outcome(code, None, killed=False)


def _retrieve(future: asyncio.Future[Any]) -> None:
    if not future.cancelled():
        future.exception()
