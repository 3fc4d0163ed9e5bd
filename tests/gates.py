"""Holding service processes at named moments that are chosen while they run."""

from __future__ import annotations

from pathlib import Path

from tests.conditions import eventually


class Gate:
    """Whoever comes to this failpoint waits there until `release`, or does what it is told."""

    def __init__(self, path: Path, action: str) -> None:
        self._path = path
        self._reached = path.with_name(path.name + ".reached")
        # At once with its content: it may be looked at at any time.
        draft = path.with_name(path.name + ".draft")
        draft.write_text(action, encoding="utf-8")
        draft.replace(path)

    @property
    def was_reached(self) -> bool:
        """Whether somebody came there."""
        return self._reached.exists()

    async def reached(self, within: float = 30.0) -> None:
        """Somebody came there; the moment that a test wants, or it fails."""
        await eventually(self._reached.exists, within=within, what=f"{self._path.name} was reached")

    def release(self) -> None:
        """Let everybody pass, now and later; twice is fine."""
        self._path.unlink(missing_ok=True)


class Gates:
    """Failpoints of processes that are started with `failpoints`."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir(exist_ok=True)
        self._directory = directory

    @property
    def failpoints(self) -> str:
        """For MOORAGE_FAILPOINTS of as many processes as a test likes."""
        return f"*=gate:{self._directory}"

    def hold(self, name: str, turn_id: str = "", action: str = "") -> Gate:
        """From now on, hold whoever comes there (with this turn); `action` kill or error instead."""
        path = self._directory / (f"{name}@{turn_id}" if turn_id else name)
        path.with_name(path.name + ".reached").unlink(missing_ok=True)
        return Gate(path, action)
