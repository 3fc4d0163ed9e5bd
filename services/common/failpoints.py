"""Named places where a test makes a process pause, die or fail. No-ops in production.

`MOORAGE_FAILPOINTS` holds `name=action` items separated by `;`. `name@turn=action` is about one
turn only and goes before `name=action`; `*=action` is about all names that have no other. Actions:

- `pause:PATH`  create `PATH.reached`, go on when `PATH` exists
- `gate:PATH`   look into the directory PATH for a file `name@turn` or `name`. Without one go on;
                else create the file `….reached` beside it and do what is written in it: `kill`,
                `error`, or nothing, which means: go on when the file is removed. So a process is
                told while it runs where to stop
- `kill`        SIGKILL of this process, as a machine that loses power
- `error`       raise FailpointError, an unexpected exception
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import structlog

VARIABLE: Final = "MOORAGE_FAILPOINTS"
ALL: Final = "*"
_POLL: Final = 0.01
_PAUSE: Final = "pause:"
_GATE: Final = "gate:"


class FailpointError(Exception):
    """Raised by the action `error`."""


class FailpointSyntaxError(ValueError):
    """MOORAGE_FAILPOINTS cannot be read."""


def parse(text: str) -> dict[str, str]:
    """The actions by name."""
    actions: dict[str, str] = {}
    for item in filter(None, map(str.strip, text.split(";"))):
        name, _, action = item.partition("=")
        if action not in ("kill", "error") and not action.startswith((f"{_PAUSE}/", f"{_GATE}/")):
            raise FailpointSyntaxError(
                f"{VARIABLE}: {item!r} has no action kill, error, {_PAUSE}/PATH or {_GATE}/PATH"
            )
        actions[name] = action
    return actions


_active: dict[str, str] = parse(os.environ.get(VARIABLE, ""))


async def failpoint(name: str, turn: str = "") -> None:
    """Do what MOORAGE_FAILPOINTS wants to happen here, mostly nothing.

    `turn` is the turn's id, where it is another than that of the log's context.
    """
    if _active:
        turn = turn or str(structlog.contextvars.get_contextvars().get("turn", ""))
        names = (f"{name}@{turn}", name) if turn else (name,)
        if action := next((_active[each] for each in (*names, ALL) if each in _active), ""):
            await _act(names, action)


async def _act(names: Sequence[str], action: str) -> None:
    """`names`: the most particular one first."""
    if action == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if action == "error":
        raise FailpointError(names[-1])
    if action.startswith(_GATE):
        await _pass_gate(Path(action.removeprefix(_GATE)), names)
        return
    release = Path(action.removeprefix(_PAUSE))
    _reached(release)
    while not release.exists():
        await asyncio.sleep(_POLL)


async def _pass_gate(directory: Path, names: Sequence[str]) -> None:
    gate = next((path for each in names if (path := directory / each).exists()), None)
    if gate is None:
        return
    action = ""
    with contextlib.suppress(FileNotFoundError):
        action = gate.read_text(encoding="utf-8").strip()
    _reached(gate)
    if action:
        await _act(names, action)
    while gate.exists():
        await asyncio.sleep(_POLL)


def _reached(path: Path) -> None:
    path.with_name(path.name + ".reached").touch()
