"""What is typed, and not shown while a terminal's lines are drawn again: it would move them."""

from __future__ import annotations

import contextlib
import os
import sys
import termios
from collections.abc import Callable

_FLAGS = 3


def is_shown() -> bool:
    """Whether the terminal shows what is typed, `^C` for Ctrl-C too."""
    with contextlib.suppress(termios.error, ValueError, OSError):
        return bool(termios.tcgetattr(sys.stdin.fileno())[_FLAGS] & termios.ECHO)
    return False


def silence() -> Callable[[], None]:
    """Show nothing of it until the function that is returned is called; what was typed unseen is dropped then."""
    try:
        descriptor = sys.stdin.fileno()
        before = termios.tcgetattr(descriptor)
        if not _is_ours(descriptor):
            return lambda: None
        silent = termios.tcgetattr(descriptor)
        silent[_FLAGS] &= ~termios.ECHO
        termios.tcsetattr(descriptor, termios.TCSADRAIN, silent)
    except (termios.error, ValueError, OSError):
        # Nobody types here.
        return lambda: None

    def restore() -> None:
        with contextlib.suppress(termios.error, OSError):
            if _is_ours(descriptor):
                # An answer that was typed before its question was seen is none.
                termios.tcsetattr(descriptor, termios.TCSAFLUSH, before)

    return restore


def _is_ours(descriptor: int) -> bool:
    """A job in the background that changes its terminal is stopped; it is not typed to either."""
    return os.tcgetpgrp(descriptor) == os.getpgrp()
