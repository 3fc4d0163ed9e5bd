"""A process of this machine, as the instance sees it through its shim."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import socket
import termios
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any, Final

from services.workspace.exec.marker import kill_marked
from services.workspace.exec.process import Outcome, ProcessLost, StartFailed, StartMissed, Streams

_RECEIVE: Final = 4096


class ShimProcess:
    """See Process. `ended` fails with ProcessLost when the shim died before it had reported."""

    def __init__(self, connection: socket.socket, streams: Streams, controller: int | None = None) -> None:
        """Listen to the shim. `controller` is the terminal's controlling side, as in `streams`."""
        connection.setblocking(False)
        self.streams = streams
        self._connection = connection
        self._controller = controller
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
        """See Process."""
        request = {"command": list(command), "environment": dict(environment), "terminal": terminal}
        self._sending = True
        try:
            await self._loop.sock_sendall(self._connection, json.dumps(request).encode() + b"\n")
        except OSError as error:
            raise StartMissed(f"the shim is gone: {error}") from error
        finally:
            self._sending = False
            self._close_if_over()
        return await asyncio.shield(self.started)

    def resize(self, columns: int, rows: int) -> None:
        """See Process."""
        if self._controller is not None:
            termios.tcsetwinsize(self._controller, (rows, columns))

    def send_signal(self, number: int) -> None:
        """See Process."""
        with contextlib.suppress(OSError):
            self._connection.send(json.dumps({"signal": number}).encode() + b"\n")

    def mark(self) -> asyncio.Future[int]:
        """See Process."""
        return self._ask({"mark": True})

    def reap(self) -> asyncio.Future[int]:
        """See Process."""
        return self._ask({"reap": True})

    def kill(self) -> None:
        """See Process."""
        with contextlib.suppress(OSError):
            self._connection.shutdown(socket.SHUT_WR)

    def live_until(self, second: float) -> None:
        """Its shim sees when this instance dies, and a machine's successor looks for what it left."""

    async def kill_left(self, exec_id: str) -> Outcome | None:
        """See Process."""
        await kill_marked(lambda marker: marker.exec_id == exec_id)
        return None

    def _ask(self, order: dict[str, bool]) -> asyncio.Future[int]:
        """The answers come in the order of the questions; ProcessLost when none can come any more."""
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
            self._asked.popleft().set_exception(ProcessLost())

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
            self.started.set_exception(StartMissed("the shim ended before the command was started"))
        if not self.ended.done():
            self.ended.set_exception(ProcessLost())

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
