"""The log of a service that this program started: a file, and what it said last."""

from __future__ import annotations

import json
from pathlib import Path
from typing import IO, Any

_LARGEST = 8 * 1024 * 1024
_TAIL = 5
_SERIOUS = frozenset({"warning", "error", "critical"})


class LogFile:
    """Goes on with the file of the run before, of which one more is kept when it grew large."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._start = 0

    def open(self) -> IO[bytes]:
        """To append to; `last_words` is about what comes from now on."""
        self.path.touch(mode=0o600)
        if self.path.stat().st_size > _LARGEST:
            self.path.replace(self.path.with_suffix(".log.1"))
            self.path.touch(mode=0o600)
        self._start = self.path.stat().st_size
        return self.path.open("ab")

    def last_words(self) -> str:
        """What the service itself gave as the cause of its end, else the last lines."""
        with self.path.open("rb") as log:
            log.seek(self._start)
            lines = log.read().decode(errors="replace").splitlines()
        reasons = [entry["event"] for entry in map(_entry, lines) if entry.get("level") == "critical"]
        if reasons:
            return f"{reasons[-1]} (log: {self.path})"
        serious = list(filter(None, map(_serious, lines)))[-_TAIL:]
        if not serious:
            return f"it complained of nothing before (log: {self.path})"
        return f"the end of {self.path}:" + "".join(f"\n  {line}" for line in serious)


def _serious(line: str) -> str:
    """What warns, in words, and what is no entry of a log at all, as it is; else nothing."""
    entry = _entry(line)
    if not entry:
        return line
    if entry.get("level") not in _SERIOUS:
        return ""
    told = (entry.get(name) for name in ("timestamp", "level", "event", "error"))
    return " ".join(str(value) for value in told if value)


def _entry(line: str) -> dict[str, Any]:
    try:
        entry = json.loads(line)
    except ValueError:
        return {}
    return entry if isinstance(entry, dict) else {}
