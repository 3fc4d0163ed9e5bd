"""Holding services in this process at named moments."""

from __future__ import annotations

from pathlib import Path

import pytest

from services.common import failpoints
from tests.conditions import eventually


class Moment:
    """Whoever comes to a failpoint waits there until it is released."""

    def __init__(self, name: str, release: Path) -> None:
        self._name = name
        self._release = release

    async def reached(self) -> None:
        """Somebody waits there."""
        mark = self._release.with_name(self._release.name + ".reached")
        await eventually(mark.exists, within=30, what=f"{self._name} was reached")

    def release(self) -> None:
        """Let everybody pass, now and later."""
        self._release.touch()


class Moments:
    """Failpoints of this process, for one test."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, directory: Path) -> None:
        self._monkeypatch = monkeypatch
        self._directory = directory

    def hold(self, name: str) -> Moment:
        """From now on, hold whoever comes there."""
        release = self._directory / f"{name}.{len(list(self._directory.iterdir()))}"
        self._monkeypatch.setitem(failpoints._active, name, f"pause:{release}")
        return Moment(name, release)

    def forget(self, name: str) -> None:
        """Nobody is held there any more; who is there already stays."""
        self._monkeypatch.delitem(failpoints._active, name)
