"""What lies on the instance's machine already: inside its root, and not in a workspace that it made."""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
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

    @contextlib.contextmanager
    def file(self, path: str) -> Iterator[int]:
        """The regular file that a path leads to, held open for reading; Rejected."""
        with self._opened(path) as fd:
            if not stat.S_ISREG(os.fstat(fd).st_mode):
                raise Rejected(f"{path} is not a file")
            yield fd

    @contextlib.contextmanager
    def directory(self, path: str) -> Iterator[int]:
        """The directory that a path leads to, held open for reading; Rejected."""
        with self._opened(path) as fd:
            if not stat.S_ISDIR(os.fstat(fd).st_mode):
                raise Rejected(f"{path} is not a directory")
            yield fd

    @contextlib.contextmanager
    def _opened(self, path: str) -> Iterator[int]:
        if not self.root:
            raise Rejected("this instance has no root for sources of file://")
        try:
            fd = os.open(path, _OPEN)
        except OSError as error:
            raise Rejected(f"{path}: {error.strerror}") from error
        try:
            self._judge(path, where(fd))
            yield fd
        finally:
            os.close(fd)

    def _judge(self, path: str, found: str) -> None:
        if not is_inside(found, self.root):
            raise Rejected(f"{path} does not lie inside {self.root}")
        if is_inside(found, self.state):
            raise Rejected(f"{path} lies among the workspaces, which are no sources")
