"""The time that a command has."""

from __future__ import annotations

from services.common.clock import Clock
from services.workspace.exec.process import Outcome, Process


class Timeout:
    """Kills a command that lasts too long."""

    def __init__(self, process: Process, seconds: float | None, clock: Clock) -> None:
        """None is no bound."""
        self.seconds = seconds or 0.0
        self._fired = False
        self._process = process
        self._clock = clock

    async def run(self) -> None:
        """Counts from now."""
        if self.seconds:
            await self._clock.sleep(self.seconds)
            # One that was lost before has not ended by this, whatever is still read of it.
            self._fired = not self._process.ended.done()
            self._process.kill()

    def has_ended(self, outcome: Outcome | None) -> bool:
        """Whether it is what ended a command that ended so; None when nobody saw how, but it is dead."""
        return self._fired and (outcome is None or outcome.killed)
