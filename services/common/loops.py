"""Background loops that survive every error and say so once."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from typing import Final

from services.common.clock import Clock, SystemClock
from services.common.errors import MoorageError
from services.common.logs import get_logger

_log: Final = get_logger(__name__)


async def forever(
    name: str,
    step: Callable[[], Awaitable[float | None]],
    *,
    clock: Clock | None = None,
    first_delay: float = 0.2,
    longest_delay: float = 15.0,
) -> None:
    """Run `step` again and again until cancelled.

    A step returns the seconds to wait before the next one, or None to go on at once because
    it waits itself. After an error the wait doubles from `first_delay` to `longest_delay`.
    """
    clock = clock or SystemClock()
    failures = Failures(name)
    while True:
        try:
            delay = await step() or 0.0
        except Exception as error:  # noqa: BLE001 (a loop outlives every error)
            failures.report(error)
            delay = failures.back_off(first_delay, longest_delay)
        else:
            failures.clear()
        await clock.sleep(delay)


class Failures:
    """Consecutive failures of one activity: logged when their kind changes, and when they end."""

    def __init__(self, name: str) -> None:
        """Name the activity."""
        self._name = name
        self._kind = ""
        self.count = 0

    def report(self, error: BaseException) -> None:
        """Count; log the first of its kind, with a stack only when nobody expected it."""
        self.count += 1
        kind = _kind(error)
        if kind != self._kind:
            self._kind = kind
            unexpected = not isinstance(error, MoorageError)
            _log.warning(
                f"{self._name} failed",
                error=_one_line(error),
                kind=kind,
                exc_info=error if unexpected else None,
            )

    def clear(self) -> None:
        """The activity succeeded."""
        if self.count:
            _log.info(f"{self._name} works again", failures=self.count)
        self.count, self._kind = 0, ""

    def back_off(self, first: float, longest: float) -> float:
        """Seconds to wait after the latest failure: doubling, and spread so that replicas differ."""
        ceiling = min(longest, first * 2.0 ** min(self.count - 1, 30))
        return random.uniform(ceiling / 2, ceiling)  # noqa: S311 (no secret)


def _kind(error: BaseException) -> str:
    if isinstance(error, MoorageError):
        return f"{type(error).__name__} {error.reason_name}"
    return type(error).__name__


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split()) or type(error).__name__
