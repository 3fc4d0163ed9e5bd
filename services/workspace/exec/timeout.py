"""The time that a command has."""

from __future__ import annotations

from services.common.clock import Clock
from services.workspace.exec.process import Process


class Timeout:
    """Kills a command that lasts too long. Whether it did is the shim's word: see Outcome.killed."""

    def __init__(self, process: Process, seconds: float | None, clock: Clock) -> None:
        """None is no bound."""
        self.seconds = seconds or 0.0
        self.fired = False
        self._process = process
        self._clock = clock

    async def run(self) -> None:
        """Counts from now."""
        if self.seconds:
            await self._clock.sleep(self.seconds)
            self.fired = True
            self._process.kill()
