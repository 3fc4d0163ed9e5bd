"""Named places where a test makes a process pause, die or fail. No-ops in production.

`MOORAGE_FAILPOINTS` holds `name=action` items separated by `;`. Actions:

- `pause:PATH`  create `PATH.reached`, go on when `PATH` exists
- `kill`        SIGKILL of this process, as a machine that loses power
- `error`       raise FailpointError, an unexpected exception
"""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path
from typing import Final

VARIABLE: Final = "MOORAGE_FAILPOINTS"
_POLL: Final = 0.01


class FailpointError(Exception):
    """Raised by the action `error`."""


class FailpointSyntaxError(ValueError):
    """MOORAGE_FAILPOINTS cannot be read."""


def parse(text: str) -> dict[str, str]:
    """The actions by name."""
    actions: dict[str, str] = {}
    for item in filter(None, map(str.strip, text.split(";"))):
        name, _, action = item.partition("=")
        if action not in ("kill", "error") and not action.startswith("pause:/"):
            raise FailpointSyntaxError(f"{VARIABLE}: {item!r} has no action kill, error or pause:/PATH")
        actions[name] = action
    return actions


_active: dict[str, str] = parse(os.environ.get(VARIABLE, ""))


async def failpoint(name: str) -> None:
    """Do what MOORAGE_FAILPOINTS wants to happen here, mostly nothing."""
    if _active and (action := _active.get(name)):
        await _act(name, action)


async def _act(name: str, action: str) -> None:
    if action == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if action == "error":
        raise FailpointError(name)
    release = Path(action.removeprefix("pause:"))
    release.with_name(release.name + ".reached").touch()
    while not release.exists():
        await asyncio.sleep(_POLL)
