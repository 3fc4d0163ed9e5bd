"""What lies on the instance's machine already: inside its root, and not in a workspace that it made."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from services.workspace.providers.directories import is_inside, where
from services.workspace.sources.fetch.bounds import Rejected

# A pipe must not hold up whoever opens it.
_OPEN: Final = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC


@dataclass(frozen=True, slots=True)
class Inside:
    """Where sources of file:// may lie: below `root`, not below `state`. An empty root is nowhere."""

    root: str
    state: str

    def open(self, path: str) -> int:
        """What a path leads to; Rejected when that is not to be had. The descriptor is the caller's."""
        if not self.root:
            raise Rejected("this instance has no root for sources of file://")
        try:
            fd = os.open(path, _OPEN)
        except OSError as error:
            raise Rejected(f"{path}: {error.strerror}") from error
        found = where(fd)
        if not is_inside(found, self.root) or is_inside(found, self.state):
            os.close(fd)
            raise Rejected(f"{path} does not lie inside {self.root}, or among the workspaces")
        return fd

    def directory(self, path: str) -> str:
        """Where a directory is, without links."""
        fd = self.open(path)
        try:
            if not Path(f"/proc/self/fd/{fd}").is_dir():
                raise Rejected(f"{path} is not a directory")
            return where(fd)
        finally:
            os.close(fd)
