"""A process in a container, as the instance sees it through its helper."""

from __future__ import annotations

import asyncio
import errno
import os
import signal
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final

from services.workspace.docker.exec import frames
from services.workspace.docker.exec.connection import Connection
from services.workspace.docker.exec.ends import InputEnd, OutputEnd, Window
from services.workspace.docker.exec.frames import Order, Report
from services.workspace.docker.exec.helper import is_missing
from services.workspace.docker.exec.lifetime import Lifetime
from services.workspace.docker.exec.mount import Seen
from services.workspace.exec.process import Outcome, ProcessLost, StartFailed, StartMissed, Streams

# Killing takes milliseconds; a helper that has not reported by then cannot, or the engine passes nothing on.
_KILL_PATIENCE: Final = 2.0

_MISSED: Final = {
    errno.ECANCELED: "given up before it was started",
    errno.ETIME: "its time was over before it was started",
    errno.EBUSY: "what an earlier start of this instance has left in the container does not die",
}

_NOT_TOLD: Final = "the engine, the container or the helper ended before the command was started"
_UNKNOWN: Final = "it is not known whether the command was started: nothing is heard of its helper any more"

KillLeft = Callable[[float], Awaitable[Outcome | None]]


class NoHelper(StartMissed):
    """The container has no helper, or one of another version: another time it will be the same."""


class DockerProcess:
    """See Process. `ended` fails with ProcessLost when the helper is not heard of any more."""

    def __init__(
        self,
        connection: Connection,
        path: str,
        directory: str,
        terminal: tuple[int, int] | None,
        lives_until: Callable[[], float],
        kill_left: KillLeft,
    ) -> None:
        """Ask the helper, which then waits, what is at that path.

        `kill_left` is told until when the helper lets it live.
        """
        loop = asyncio.get_running_loop()
        self._connection = connection
        self._directory = directory
        self._terminal = terminal
        self._kill_left = kill_left
        window = Window(connection.send)
        self._stdin = InputEnd(connection.send, self._on_closed)
        self._stdout = OutputEnd(window.take, self._on_closed)
        self._stderr = None if terminal else OutputEnd(window.take, self._on_closed)
        self.streams = Streams(self._stdin, self._stdout, self._stderr)
        self._open_ends = 2 if terminal else 3
        self._is_told = False
        self._asked: dict[Report, deque[asyncio.Future[int]]] = {
            Report.MARKED: deque(),
            Report.REAPED: deque(),
        }
        self._killing: asyncio.TimerHandle | None = None
        self._lifetime = Lifetime(connection.send, lives_until)
        self.ready: asyncio.Future[Seen] = loop.create_future()
        """Done with what is at the path, or StartMissed: nothing of the command can have run then."""
        self.started: asyncio.Future[int] = loop.create_future()
        self.ended: asyncio.Future[Outcome] = loop.create_future()
        for future in (self.ready, self.started, self.ended):
            future.add_done_callback(_retrieve)
        connection.listen(self)
        connection.send(frames.hello(path))

    async def start(self, command: Sequence[str], environment: Mapping[str, str], *, terminal: bool) -> int:
        """See Process."""
        until = self._lifetime.begin()
        try:
            request = frames.start(
                self._directory,
                command,
                environment,
                until=until,
                terminal=self._terminal if terminal else None,
            )
        except frames.TooLong:
            raise StartFailed(os.strerror(errno.E2BIG)) from None
        self._connection.send(request)
        self._is_told = True
        self._stdin.begin()
        return await asyncio.shield(self.started)

    def resize(self, columns: int, rows: int) -> None:
        """See Process."""
        self._connection.send(frames.resize(columns, rows))

    def send_signal(self, number: int) -> None:
        """See Process."""
        self._connection.send(frames.number(Order.SIGNAL, number))

    def mark(self) -> asyncio.Future[int]:
        """See Process."""
        return self._ask(Order.MARK, Report.MARKED)

    def reap(self) -> asyncio.Future[int]:
        """See Process."""
        return self._ask(Order.REAP, Report.REAPED)

    def kill(self) -> None:
        """See Process."""
        if not self.ended.done() and self._killing is None:
            self._lifetime.stop()
            self._connection.send(frames.frame(Order.KILL))
            self._killing = asyncio.get_running_loop().call_later(_KILL_PATIENCE, self._connection.close)

    def live_until(self, second: float) -> None:
        """See Process."""
        self._lifetime.limit(second)

    async def kill_left(self, exec_id: str) -> Outcome | None:
        """See Process."""
        return await self._kill_left(self._lifetime.told)

    def close(self) -> None:
        """Give it up: the helper kills everything when it reads the end."""
        self._connection.close()

    def on_report(self, report: Report, payload: bytes) -> None:
        """See Listener."""
        match report:
            case Report.STDOUT:
                self._stdout.feed(payload)
            case Report.STDERR if self._stderr is not None:
                self._stderr.feed(payload)
            case Report.WROTE:
                self._stdin.wrote(frames.read_number(payload))
            case Report.REFUSED:
                self._stdin.refuse()
            case Report.MARKED | Report.REAPED:
                self._asked[report].popleft().set_result(frames.read_number(payload))
            case _:
                self._on_stage(report, payload)

    def on_lost(self, words: str) -> None:
        """See Listener."""
        self._lifetime.stop()
        # What an engine says here is no verdict: one that is being stopped says anything.
        missed = StartMissed(_UNKNOWN) if self._is_told else _why_missed(words)
        for future in (self.ready, self.started):
            if not future.done():
                future.set_exception(missed)
        if not self.ended.done():
            self.ended.set_exception(ProcessLost())
        self._on_dead()
        self._finish_output()

    def _on_stage(self, report: Report, payload: bytes) -> None:
        match report:
            case Report.READY:
                self._on_ready(payload)
            case Report.STARTED:
                self.started.set_result(frames.read_number(payload))
            case Report.FAILED:
                self._on_failed(frames.read_number(payload))
            case Report.DEAD:
                self.ended.set_result(_outcome(*frames.read_dead(payload)))
                # It lives until its output was taken.
                self._lifetime.go_on()
                self._on_dead()
            case Report.END:
                self._finish_output()

    def _on_ready(self, payload: bytes) -> None:
        if self.ready.done():
            return
        try:
            ready = frames.read_ready(payload)
        except frames.OtherVersion as error:
            self.ready.set_exception(NoHelper(str(error)))
            self._connection.close()
            return
        self._lifetime.synchronize(ready.now)
        self.ready.set_result(ready.seen)

    def _on_failed(self, number: int) -> None:
        missed = _MISSED.get(number)
        cause = StartMissed(missed) if missed else StartFailed(os.strerror(number))
        for future in (self.ready, self.started):
            if not future.done():
                future.set_exception(cause)
        self.ended.set_result(Outcome(None, None, killed=True))
        self._on_dead()
        self._finish_output()

    def _on_dead(self) -> None:
        """What is still to be said can only be output."""
        if self._killing is not None:
            self._killing.cancel()
        self._stdin.refuse()
        for waiting in self._asked.values():
            while waiting:
                waiting.popleft().set_exception(ProcessLost())
        self._close_if_over()

    def _finish_output(self) -> None:
        self._stdout.finish()
        if self._stderr is not None:
            self._stderr.finish()

    def _on_closed(self) -> None:
        self._open_ends -= 1
        self._close_if_over()

    def _close_if_over(self) -> None:
        if self.ended.done() and not self._open_ends:
            self._connection.close()

    def _ask(self, order: Order, answered_by: Report) -> asyncio.Future[int]:
        answer: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        answer.add_done_callback(_retrieve)
        if self.ended.done():
            answer.set_exception(ProcessLost())
        else:
            self._asked[answered_by].append(answer)
            self._connection.send(frames.frame(order))
        return answer


def _why_missed(words: str) -> StartMissed:
    return NoHelper(words) if is_missing(words) else StartMissed(words or _NOT_TOLD)


def _outcome(status: int, killed: bool, out_of_memory: bool) -> Outcome:
    code = os.waitstatus_to_exitcode(status)
    if code < 0:
        return Outcome(None, -code, killed and -code == signal.SIGKILL, out_of_memory)
    return Outcome(code, None, killed=False, out_of_memory=out_of_memory)


def _retrieve(future: asyncio.Future[Any]) -> None:
    if not future.cancelled():
        future.exception()
