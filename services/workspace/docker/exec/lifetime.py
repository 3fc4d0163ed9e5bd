"""Until when a helper lets its command live, when it hears no more (F6).

An engine that hangs passes no kill on. So a helper is told a time, again and again, and kills by
itself what has outlived it. Times go over to the helper's clock by what it said of it when it
was ready: that came later than it was said, so what it is told is never too late.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable
from typing import Final

from services.workspace.docker.exec import frames

_BEAT: Final = 0.5
_NANOSECONDS: Final = 1_000_000_000


class Lifetime:
    """Tells one helper. All seconds are of this machine's boot clock."""

    def __init__(self, send: Callable[[bytes], None], lives_until: Callable[[], float]) -> None:
        """`lives_until` is until when the instance may have processes; asked again and again."""
        self._send = send
        self._lives_until = lives_until
        self._limit = math.inf
        self._offset = 0
        self._beat: asyncio.TimerHandle | None = None
        self.told = 0.0
        """What the helper was told last."""

    def synchronize(self, helper_now: int) -> None:
        """What the helper's clock showed before this moment, in nanoseconds."""
        self._offset = helper_now - _now()

    def limit(self, second: float) -> None:
        """It may not live longer than this; a later call extends it."""
        self._limit = second
        if self._beat is not None:
            self._tell()

    def begin(self) -> int:
        """Until when it may live at first, by the helper's clock in nanoseconds; from now on it is told."""
        self.told = self._until()
        self.go_on()
        return self._converted()

    def go_on(self) -> None:
        """Tell it again and again."""
        self.stop()
        self._beat = asyncio.get_running_loop().call_later(_BEAT, self._on_beat)

    def stop(self) -> None:
        """It is not told any more: it is to end."""
        if self._beat is not None:
            self._beat.cancel()
            self._beat = None

    def _on_beat(self) -> None:
        self._tell()
        self.go_on()

    def _tell(self) -> None:
        if (until := self._until()) > self.told:
            self.told = until
            self._send(frames.until(self._converted()))

    def _until(self) -> float:
        return min(self._limit, self._lives_until())

    def _converted(self) -> int:
        return max(round(self.told * _NANOSECONDS) + self._offset, 0)


def _now() -> int:
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME)
