"""A set-up command that waits for a test, in the container that it prepares."""

from __future__ import annotations

import contextlib
import secrets
from pathlib import Path

from tests.conditions import eventually
from tests.workspace.processes import with_argument

_WITHIN = 60.0


class Preparation:
    """Of one workspace, whose directory Moorage makes."""

    def __init__(self, directory: Path) -> None:
        """Where the command runs."""
        self._go = directory / "go"
        self._tag = f"prepares-{secrets.token_hex(8)}"

    @property
    def command(self) -> list[str]:
        """What to run."""
        return ["sh", "-c", f"until [ -e {self._go.name} ]; do sleep 0.1; done", self._tag]

    async def reached(self) -> None:
        """It runs."""
        await eventually(lambda: bool(with_argument(self._tag)), within=_WITHIN, what=f"{self._tag} runs")

    def release(self) -> None:
        """Let it end, now and whenever it is run again."""
        with contextlib.suppress(FileNotFoundError):
            self._go.touch()

    async def ended(self) -> None:
        """It does not run any more; whoever waits for it may not know yet."""
        await eventually(lambda: not with_argument(self._tag), within=_WITHIN, what=f"{self._tag} has ended")
