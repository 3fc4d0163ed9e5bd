"""A process that is to stand still does so before anything is concluded from its silence."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path

from tests.conditions import eventually
from tests.processes import freeze, states

# Its first thread, which gets the signal, starts a program that cannot be opened yet. Until it can,
# the thread heeds no signal but SIGKILL; the other one goes on giving back what it reads.
_PROGRAM = """
import ctypes, os, sys, threading

def give_back():
    while piece := os.read(0, 100):
        os.write(1, piece)

threading.Thread(target=give_back).start()
libc, actions, child = ctypes.CDLL(None), ctypes.create_string_buffer(1024), ctypes.c_int()
libc.posix_spawn_file_actions_init(actions)
libc.posix_spawn_file_actions_addopen(actions, 0, sys.argv[1].encode(), os.O_RDONLY, 0)
arguments = (ctypes.c_char_p * 2)(b"true", None)
libc.posix_spawnp(ctypes.byref(child), b"true", actions, None, arguments, None)
"""


async def test_a_process_is_frozen_when_all_its_threads_have_stopped(tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", _PROGRAM, str(gate)),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    await eventually(lambda: "D" in states(process.pid), what="it waits for its child")
    freezing = asyncio.create_task(asyncio.to_thread(freeze, process.pid))
    await eventually(lambda: _is_told(process.pid), what="the signal was sent")
    process.stdin.write(b"still here")
    assert await process.stdout.readexactly(10) == b"still here"
    assert not freezing.done()
    os.close(os.open(gate, os.O_WRONLY))
    await freezing
    assert states(process.pid) == {"T"}
    process.send_signal(signal.SIGCONT)
    process.stdin.close()
    assert await process.wait() == 0


def _is_told(pid: int) -> bool:
    """Whether a SIGSTOP waits for one of its threads."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    pending = next(line for line in lines if line.startswith("ShdPnd:"))
    return bool(int(pending.split()[1], 16) >> (signal.SIGSTOP - 1) & 1)
