"""The marker in the environment of every process of an exec, and the search for marked processes.

`MOORAGE_EXEC=<deployment>/<instance>/<start>/<exec>`: descendants inherit it, so an instance
that starts finds what its predecessor left, also when every parent in between is gone.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

VARIABLE: Final = "MOORAGE_EXEC"
FORK_SERVER: Final = "fork-server"
_PREFIX: Final = VARIABLE.encode() + b"="
_PARTS: Final = 4
_CLEAN_SCANS: Final = 2
_PAUSE: Final = 0.01


@dataclass(frozen=True, slots=True)
class Marker:
    """What a process belongs to. `start` tells the starts of one instance apart."""

    deployment: str
    instance: str
    start: str
    exec_id: str = ""

    def of(self, exec_id: str) -> Marker:
        """The marker of one exec of this start."""
        return Marker(self.deployment, self.instance, self.start, exec_id)

    def environment(self) -> dict[str, str]:
        """The variable to give to the processes."""
        return {VARIABLE: self.text}

    @property
    def text(self) -> str:
        """All of it."""
        return f"{self.deployment}/{self.instance}/{self.start}/{self.exec_id}"

    @classmethod
    def read(cls, environ: bytes) -> Self | None:
        """The marker in a process's initial environment, as /proc shows it."""
        for variable in environ.split(b"\0"):
            if variable.startswith(_PREFIX):
                parts = variable.removeprefix(_PREFIX).decode(errors="replace").split("/")
                return cls(*parts) if len(parts) == _PARTS else None
        return None

    @property
    def instance_prefix(self) -> str:
        """What the texts of all starts of its instance begin with."""
        return f"{self.deployment}/{self.instance}/"

    def is_predecessor(self, other: Marker) -> bool:
        """Whether the other belongs to an earlier start of this instance."""
        return (other.deployment, other.instance) == (self.deployment, self.instance) and (
            other.start != self.start
        )


Wanted = Callable[[Marker], bool]


async def kill_marked(wanted: Wanted, *, grace: float = 0.0) -> int:
    """Kill until no process with a wanted marker is left; how many signals that took.

    For `grace` seconds only shims are asked (they kill all that is below them), then all is killed.
    """
    loop = asyncio.get_running_loop()
    asked_until = loop.time() + grace
    signalled = clean = 0
    while clean < _CLEAN_SCANS:
        asking = loop.time() < asked_until
        found, sent = await asyncio.to_thread(_signal_all, wanted, asking=asking)
        signalled += sent
        clean = 0 if found else clean + 1
        await asyncio.sleep(_PAUSE)
    return signalled


def _signal_all(wanted: Wanted, *, asking: bool) -> tuple[int, int]:
    """How many living processes have a wanted marker, and how many of them got a signal."""
    markers = list(_signal_marked(wanted, asking=asking))
    return len(markers), sum(_is_addressed(marker, asking=asking) for marker in markers)


def _signal_marked(wanted: Wanted, *, asking: bool) -> Iterator[Marker]:
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(ProcessLookupError, PermissionError, FileNotFoundError):
                yield from _signal_one(int(entry.name), wanted, asking=asking)


def _signal_one(pid: int, wanted: Wanted, *, asking: bool) -> Iterator[Marker]:
    # The descriptor pins the process before its environment is read: what is signalled is what was read.
    fd = os.pidfd_open(pid)
    try:
        marker = Marker.read(Path(f"/proc/{pid}/environ").read_bytes())
        if marker is None or not wanted(marker):
            return
        if _is_addressed(marker, asking=asking):
            signal.pidfd_send_signal(fd, signal.SIGTERM if asking else signal.SIGKILL)
            # One that was stopped could do nothing about what it is asked for.
            signal.pidfd_send_signal(fd, signal.SIGCONT)
        yield marker
    finally:
        os.close(fd)


def _is_addressed(marker: Marker, *, asking: bool) -> bool:
    return marker.exec_id == FORK_SERVER or not asking
