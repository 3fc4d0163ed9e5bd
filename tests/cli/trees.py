"""Processes and their descendants, from /proc."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path


def descendants(pid: int) -> dict[int, str]:
    """Every living process below this one: its command line by its pid."""
    children: dict[int, list[int]] = {}
    for process in Path("/proc").glob("[0-9]*"):
        if parent := _parent(process):
            children.setdefault(parent, []).append(int(process.name))
    found: dict[int, str] = {}
    waiting = [pid]
    while waiting:
        for child in children.get(waiting.pop(), []):
            found[child] = command_of(child)
            waiting.append(child)
    return found


def command_of(pid: int) -> str:
    """Its command line; empty when it is gone."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    return ""


def runs(pid: int) -> bool:
    """False for a process that ended, reaped or not."""
    with contextlib.suppress(OSError):
        return _fields(Path(f"/proc/{pid}"))[0] != "Z"
    return False


def processor_time(pid: int) -> float:
    """Seconds of a processor that it has used."""
    fields = _fields(Path(f"/proc/{pid}"))
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _parent(process: Path) -> int:
    with contextlib.suppress(OSError):
        state, parent = _fields(process)[:2]
        return int(parent) if state != "Z" else 0
    return 0


def _fields(process: Path) -> list[str]:
    return (process / "stat").read_text().rpartition(")")[2].split()
