"""The log of a service that this program started: a file, and what it said last."""

from __future__ import annotations

import json
from pathlib import Path
from typing import IO, Any

_LARGEST = 8 * 1024 * 1024
_TAIL = 10


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
        tail = "".join(f"\n  {line}" for line in lines[-_TAIL:])
        return f"the end of {self.path}:{tail}"


def _entry(line: str) -> dict[str, Any]:
    try:
        entry = json.loads(line)
    except ValueError:
        return {}
    return entry if isinstance(entry, dict) else {}
