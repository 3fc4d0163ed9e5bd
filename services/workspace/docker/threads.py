"""A few threads for blocking calls of an engine: when it hangs nobody else is starved of threads."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

T = TypeVar("T")


class Call(Future[T]):
    """Work for a thread; `begun` is when one began with it, in seconds of the monotonic clock."""

    begun: float | None = None


class Threads:
    """Started when they are needed, never more than `most`. They do not hold up the process's end."""

    def __init__(self, most: int) -> None:
        """None runs yet."""
        self._most = most
        self._waiting: queue.SimpleQueue[tuple[Call[Any], Callable[[], Any]] | None] = queue.SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._idle = threading.Semaphore(0)

    def submit(self, work: Callable[[], T]) -> Call[T]:
        """Do it when a thread is free; it can be cancelled until then."""
        call: Call[T] = Call()
        self._waiting.put((call, work))
        if not self._idle.acquire(blocking=False) and len(self._threads) < self._most:
            thread = threading.Thread(target=self._run, name="engine", daemon=True)
            self._threads.append(thread)
            thread.start()
        return call

    def close(self) -> None:
        """End them, each after what it is at."""
        for _ in self._threads:
            self._waiting.put(None)

    def _run(self) -> None:
        while (next_one := self._waiting.get()) is not None:
            _do(*next_one)
            # Nothing of it may live on in this frame until the next one comes.
            del next_one
            self._idle.release()


def _do(call: Call[Any], work: Callable[[], Any]) -> None:
    # Before it counts as begun, so that whoever finds that it has begun knows since when.
    call.begun = time.monotonic()
    if not call.set_running_or_notify_cancel():
        return
    try:
        result = work()
    except BaseException as error:  # noqa: BLE001 (whoever waits for it gets it)
        call.set_exception(error)
    else:
        call.set_result(result)
