"""A command and everything it started, whatever it runs in: what a provider gives to run one with."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol


class StartFailed(Exception):
    """The command could not be started; the text says why."""


class StartMissed(StartFailed):
    """Through no fault of its own it was not started this time, or nobody knows; the text says which."""


class ProcessLost(Exception):
    """What watched over the command died before it had reported: what lives on has to be looked for."""


class PlaceLost(Exception):
    """What the command ran in is gone, and all of its processes with it; the text says why."""


class PlaceStopped(PlaceLost):
    """What the command ran in has stopped, and all of its processes with it; its next use starts it again."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a command ended. At most one of the two numbers is there; none when it was never started."""

    exit_code: int | None
    signal: int | None
    killed: bool
    """The command still ran when it was to be killed, and the kill ended it."""
    out_of_memory: bool = False
    """A process of it was killed because the workspace's memory was used up."""


class ReadEnd(Protocol):
    """Where output comes out. Use it from one task at a time."""

    def read_now(self, *, nobody_writes: bool) -> bytes | None:
        """At most 64 KiB, b"" at the end, None when there is nothing at the moment.

        `nobody_writes` says that all processes were dead before: what is on its way still comes.
        """
        ...

    async def wait(self, other: asyncio.Future[Any]) -> None:
        """Until there is something to read, or the end, or `other` is done."""
        ...

    def close(self) -> None:
        """Nobody reads any more. Idempotent."""
        ...


class WriteEnd(Protocol):
    """Where input goes in. Use it from one task at a time."""

    def write_now(self, data: memoryview) -> int:
        """How many bytes went in; 0 when it is full. OSError when nobody reads any more."""
        ...

    async def wait(self) -> None:
        """Until there is room, or nobody reads."""
        ...

    def close(self) -> None:
        """The end of input, after what was written. Idempotent."""
        ...


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


class Process(Protocol):
    """One exec's processes, of which none runs before `start`."""

    streams: Streams
    started: asyncio.Future[int]
    """Done with the process id of the group's leader, or StartFailed, StartMissed."""
    ended: asyncio.Future[Outcome]
    """Done when all of its processes are dead, or ProcessLost when nobody can tell."""

    async def start(self, command: Sequence[str], environment: Mapping[str, str], *, terminal: bool) -> int:
        """Say what to run, with exactly these variables; as `started`."""
        ...

    def resize(self, columns: int, rows: int) -> None:
        """Set the terminal's size; only with one."""
        ...

    def send_signal(self, number: int) -> None:
        """A signal for the group; nothing when the command has ended."""
        ...

    def mark(self) -> asyncio.Future[int]:
        """Draw a line; done, with the number of processes there are, when what follows is younger.

        It and `reap` fail with ProcessLost when no answer can come any more.
        """
        ...

    def reap(self) -> asyncio.Future[int]:
        """Have what is younger than the newest mark killed; done, with their number, when they are dead."""
        ...

    def kill(self) -> None:
        """Have everything killed. Never waits, never fails; `ended` tells when it is done."""
        ...

    def live_until(self, second: float) -> None:
        """It may live until then, by the boot clock. Where killing it may fail, it ends then by itself."""
        ...

    async def kill_left(self, exec_id: str) -> Outcome | None:
        """After `ended` failed: return when none of its processes lives any more, however long it takes.

        How it ended if that can be told. Raises PlaceLost, PlaceStopped.
        """
        ...
