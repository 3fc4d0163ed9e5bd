"""A terminal of its own for a command, as a terminal emulator shows it."""

from __future__ import annotations

import fcntl
import os
import pty
import struct
import subprocess
import termios
from collections.abc import Iterator
from contextlib import contextmanager

import pyte

from tests.cli.programs import MOORAGE, Place

COLUMNS = 72
LINES = 40


class Terminal:
    """What it shows, and what is typed there."""

    def __init__(self, process: subprocess.Popen[bytes], descriptor: int) -> None:
        self.process = process
        self._descriptor = descriptor
        self._screen = pyte.Screen(COLUMNS, LINES)
        self._stream = pyte.ByteStream(self._screen)

    @property
    def lines(self) -> list[str]:
        """As they are now, without the empty ones below."""
        return "\n".join(line.rstrip() for line in self._screen.display).rstrip().split("\n")

    def until(self, text: str) -> list[str]:
        """The lines, once the text is there; it may go over the edge."""
        while text not in "".join(self._screen.display):
            self._stream.feed(os.read(self._descriptor, 4096))
        return self.lines

    def ended(self) -> list[str]:
        """The lines when the command has ended."""
        while True:
            try:
                self._stream.feed(os.read(self._descriptor, 4096))
            except OSError:
                # Nobody has the other side open any more.
                return self.lines

    def type(self, keys: bytes) -> None:
        """Type something."""
        os.write(self._descriptor, keys)

    def shows_cursor(self) -> bool:
        """Whether there is one."""
        return not self._screen.cursor.hidden


@contextmanager
def on_terminal(place: Place, *arguments: str, term: str = "xterm-256color") -> Iterator[Terminal]:
    """A command on a terminal of its own, which it controls."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", LINES, COLUMNS, 0, 0))
    size = {"COLUMNS": str(COLUMNS), "LINES": str(LINES)}
    process = subprocess.Popen(
        # In its foreground, so that keys become signals.
        ["setsid", "--ctty", *MOORAGE, *arguments],
        cwd=place.work,
        env=place.environment({"TERM": term, **size}),
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
    )
    os.close(theirs)
    try:
        yield Terminal(process, ours)
    finally:
        process.kill()
        process.wait()
        os.close(ours)
