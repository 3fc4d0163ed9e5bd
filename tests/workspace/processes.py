"""Looking at the machine's processes, as whoever wants to be sure that they are dead."""

from __future__ import annotations

from pathlib import Path

from tests.conditions import eventually

FORK_BOMB = """
import os
while True:
    try:
        if os.fork() == 0:
            os.setsid()
    except OSError:
        pass
"""
"""A program of Python's: each process leaves its session, and goes on where another one makes room."""


def is_alive(pid: int) -> bool:
    """Whether it runs; a dead child that nobody collected does not."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state not in "ZX"


def with_argument(text: str) -> list[int]:
    """Living processes one of whose arguments is exactly `text`."""
    wanted = text.encode()
    return [pid for pid in _pids() if wanted in _command(pid).split(b"\0") and is_alive(pid)]


def mentioning(text: str) -> list[int]:
    """Living processes whose environment, at their start, contains `text`."""
    return [pid for pid in _pids() if text.encode() in _read(pid, "environ") and is_alive(pid)]


async def appears(text: str, count: int = 1) -> list[int]:
    """The processes with this argument, once there are so many."""
    await eventually(lambda: len(with_argument(text)) >= count, what=f"{count} processes with {text}")
    return with_argument(text)


def _pids() -> list[int]:
    return [int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit()]


def _command(pid: int) -> bytes:
    return _read(pid, "cmdline")


def _read(pid: int, name: str) -> bytes:
    try:
        return Path(f"/proc/{pid}/{name}").read_bytes()
    except OSError:
        return b""


def parent_of(pid: int) -> int:
    """Its parent."""
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
