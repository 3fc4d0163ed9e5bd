"""Ctrl-C, SIGTERM and a closed terminal end a command by cancelling it, so that it cleans up."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys
from collections.abc import Awaitable, Callable, Iterator
from typing import TypeVar

from services.cli import echo

T = TypeVar("T")

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interrupted(Exception):
    """A signal ended the command."""

    def __init__(self, number: signal.Signals) -> None:
        super().__init__(number.name)
        self.number = number


async def interruptible(work: Callable[[], Awaitable[T]]) -> T:
    """Do the work; raise Interrupted when a signal ended it. Each further signal cancels once more."""
    task = asyncio.ensure_future(work())
    received: list[signal.Signals] = []

    def interrupt(number: signal.Signals) -> None:
        received.append(number)
        if number is signal.SIGINT and sys.stderr.isatty() and echo.is_shown():
            sys.stderr.write("\n")  # the terminal shows ^C
        task.cancel()

    with _handling(interrupt):
        try:
            return await task
        except asyncio.CancelledError:
            if received:
                raise Interrupted(received[0]) from None
            raise


@contextlib.contextmanager
def _handling(handler: Callable[[signal.Signals], None]) -> Iterator[None]:
    loop = asyncio.get_running_loop()
    # What the caller ignores (nohup, a shell's background job) stays ignored.
    heard = [number for number in _SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]
    for number in heard:
        loop.add_signal_handler(number, handler, number)
    try:
        yield
    finally:
        for number in heard:
            loop.remove_signal_handler(number)
