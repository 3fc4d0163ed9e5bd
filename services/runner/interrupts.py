"""Scopes that somebody else can end, as a timeout would, with an error of their choice."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from types import TracebackType
from typing import Final, Self

from services.common.clock import Clock
from services.common.logs import get_logger

_log: Final = get_logger(__name__)


class Interruption:
    """Ends the body of its `async with` by raising what was given to `interrupt`.

    The first error counts. Given before the body begins it is raised at the entry; after
    the body has ended it changes nothing. Interruptions nest like timeouts do.
    """

    def __init__(self) -> None:
        """Not entered yet."""
        self.error: Exception | None = None
        self._task: asyncio.Task[object] | None = None
        self._cancelling = 0
        self._fired = False

    def interrupt(self, error: Exception) -> None:
        """End the body with this error; may be called from the body's own task, too."""
        if self.error is None:
            self.error = error
            # Later, so that the task is suspended inside the body, or has left it for good.
            asyncio.get_running_loop().call_soon(self._fire)

    async def __aenter__(self) -> Self:
        """Raise the error at once if it was given already."""
        if self.error is not None:
            raise self.error
        self._task = asyncio.current_task()
        self._cancelling = self._task.cancelling() if self._task else 0
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Turn the cancellation that `interrupt` caused, and no other, into its error."""
        task, self._task = self._task, None
        if not self._fired or task is None:
            return
        cancelled_otherwise = task.uncancel() > self._cancelling
        if self.error and kind is asyncio.CancelledError and not cancelled_otherwise:
            raise self.error from error

    def _fire(self) -> None:
        if self._task is not None and not self._fired:
            self._fired = True
            self._task.cancel()


@asynccontextmanager
async def time_limit(clock: Clock, seconds: float, error: Callable[[], Exception]) -> AsyncIterator[None]:
    """Give the body so much time; afterwards it is interrupted with the error."""
    scope = Interruption()

    async def expire() -> None:
        await clock.sleep(seconds)
        scope.interrupt(error())

    async with background(expire()), scope:
        yield


@asynccontextmanager
async def background(*activities: Coroutine[None, None, None]) -> AsyncIterator[None]:
    """Run the activities beside the body; they end with it at the latest.

    An activity that fails is logged: what must stop the body has to interrupt it.
    """
    tasks = [asyncio.create_task(activity) for activity in activities]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        for result in await asyncio.gather(*tasks, return_exceptions=True):
            if isinstance(result, Exception):
                _log.error("a background activity failed", exc_info=result)
