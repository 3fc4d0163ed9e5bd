"""A native session: what was said and what it was told to remember."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TextIO

from .wire import Message

STATE_DIRECTORY = ".moorage-demo"


class Session:
    """Kept in memory and in a journal on disk, from which another process can load it."""

    def __init__(self, session_id: str, directory: str) -> None:
        self.id = session_id
        self.directory = directory
        self.state = Path(directory, STATE_DIRECTORY, session_id)
        self.memory: list[str] = []
        self.updates: list[Message] = []
        self.always_allowed = False
        self._file: TextIO | None = None

    def remember(self, text: str) -> None:
        self._record({"remember": text})

    def add_update(self, update: Message) -> None:
        self._record({"update": update})

    def make_state_directory(self) -> None:
        self.state.mkdir(parents=True, exist_ok=True)
        self.state.with_name(".gitignore").write_text("*\n", encoding="utf-8")

    def load(self) -> bool:
        """Read the journal; False when there is none."""
        try:
            lines = self._journal.read_text(encoding="utf-8").splitlines()
        except OSError:
            return False
        for line in lines:
            try:
                self._apply(json.loads(line))
            except ValueError:
                # The last line of a process that was killed while it wrote.
                continue
        return True

    @property
    def _journal(self) -> Path:
        return self.state / "journal.jsonl"

    def _record(self, entry: Message) -> None:
        self._apply(entry)
        try:
            journal = self._file or self._open_journal()
            journal.write(json.dumps(entry) + "\n")
            journal.flush()
        except OSError:
            # A directory that cannot be written costs only the loading by another process.
            return

    def _open_journal(self) -> TextIO:
        self.make_state_directory()
        self._file = self._journal.open("a", encoding="utf-8")
        # Ends a torn line.
        self._file.write("\n")
        return self._file

    def _apply(self, entry: Message) -> None:
        if "remember" in entry:
            self.memory.append(entry["remember"])
        else:
            self.updates.append(entry["update"])
