"""Rogues that leave processes behind when their prompt ends."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from .wire import Message, chunk, end, receive

SLEEPS = ("/bin/sh", "-c", "echo $$ > left; exec sleep 600")


def leaves_a_child(prompt: Message) -> None:
    """A process in its own group; takes prompts for ever."""
    _leave(prompt, new_session=False)


def leaves_a_stranger(prompt: Message) -> None:
    """A process with a session and a group of its own, that no parent waits for; takes prompts for ever."""
    _leave(prompt, new_session=True)


def leaves_a_child_and_exits(prompt: Message) -> None:
    """As before, and the agent is gone in the middle of the prompt."""
    _start(new_session=True)
    chunk("left")
    os._exit(1)


def _leave(prompt: Message, *, new_session: bool) -> None:
    while True:
        _start(new_session=new_session)
        chunk(f"pid {os.getpid()} ")
        end(prompt)
        prompt = receive()


def _start(*, new_session: bool) -> None:
    left = Path("left")
    left.unlink(missing_ok=True)
    if os.fork() == 0:
        subprocess.Popen(SLEEPS, start_new_session=new_session, stdin=subprocess.DEVNULL, stdout=sys.stderr)
        os._exit(0)
    os.wait()
    while not (left.exists() and left.read_text()):
        os.sched_yield()
