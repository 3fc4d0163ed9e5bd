"""What tests ask about processes."""

from __future__ import annotations

import os
import signal
from pathlib import Path


def is_alive(pid: int) -> bool:
    """Whether a process of this id runs; a zombie does not."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] not in ("Z", "X")


def states(pid: int) -> set[str]:
    """Of all threads of a process, as the kernel writes them: R, S, D, T …"""
    stats = [path.read_text() for path in Path(f"/proc/{pid}/task").glob("*/stat")]
    return {stat.rpartition(")")[2].split()[0] for stat in stats}


def freeze(pid: int) -> None:
    """Stop a child with SIGSTOP. The signal only asks for it: all its threads have stopped when this returns."""
    os.kill(pid, signal.SIGSTOP)
    # Left to be waited for again: it may be told to stop while it stands still.
    os.waitid(os.P_PID, pid, os.WSTOPPED | os.WNOWAIT)
