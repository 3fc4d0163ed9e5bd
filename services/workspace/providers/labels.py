"""Labels beside provisioned directories: whose they are (W1). What is not ours is never touched."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

from services.workspace.workspaces import Workspace

_READ: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_WRITE: Final = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
_LONGEST: Final = 4096
_SUFFIX: Final = ".json"
# Labels of its directories were written before there was another provider.
_UNNAMED: Final = "local"
_SAID: Final = {"deployment", "project", "workspace_id", "instance_id"}


@dataclass(frozen=True, slots=True)
class Label:
    """A file beside a provisioned directory; its name cannot be that of a workspace."""

    deployment: str
    instance_id: str
    provider: str
    project: str
    workspace_id: str

    @classmethod
    def of(cls, workspace: Workspace, deployment: str) -> Self:
        """What a workspace's must say."""
        return cls(
            deployment,
            workspace.instance_id,
            workspace.provider,
            workspace.project,
            workspace.workspace_id,
        )

    def is_ours(self, parent: int) -> bool:
        """Whether it is there and says exactly this."""
        return _read(self._name, parent) == self._content

    def write(self, parent: int) -> None:
        """Put it there whole or not at all; FileExistsError when there is one."""
        try:
            with os.fdopen(os.open(self._draft, _WRITE, 0o600, dir_fd=parent), "wb") as file:
                file.write(self._content)
            os.link(self._draft, self._name, src_dir_fd=parent, dst_dir_fd=parent)
        finally:
            self.forget_draft(parent)

    def remove(self, parent: int) -> None:
        """Take it away."""
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self._name, dir_fd=parent)

    def forget_draft(self, parent: int) -> None:
        """Remove what a process left that died while it wrote."""
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self._draft, dir_fd=parent)

    @property
    def _draft(self) -> str:
        # Named by what it says: others' drafts are neither used nor removed.
        return f"{self._name}.{hashlib.sha256(self._content).hexdigest()[:16]}"

    @property
    def _name(self) -> str:
        return self.workspace_id + _SUFFIX

    @property
    def _content(self) -> bytes:
        named = {} if self.provider == _UNNAMED else {"provider": self.provider}
        content = {
            "deployment": self.deployment,
            "project": self.project,
            "workspace_id": self.workspace_id,
            "instance_id": self.instance_id,
        }
        return json.dumps({**content, **named}).encode()


def is_there(project: Path, workspace_id: str) -> bool:
    """Whether a directory has a label for a workspace, of whichever instance and deployment."""
    try:
        said = json.loads(_read(str(project / (workspace_id + _SUFFIX))))
    except (ValueError, RecursionError):
        return False
    named = {"project": project.name, "workspace_id": workspace_id}
    return isinstance(said, dict) and said.keys() >= _SAID and named.items() <= said.items()


def workspace_named_by(name: str) -> str:
    """The workspace whose label has this name; empty when it is no label's."""
    return name.removesuffix(_SUFFIX) if name.endswith(_SUFFIX) else ""


def _read(name: str, parent: int | None = None) -> bytes:
    """What a regular file says; nothing when there is none."""
    try:
        fd = os.open(name, _READ, dir_fd=parent)
    except OSError:
        return b""
    with os.fdopen(fd, "rb") as file:
        return file.read(_LONGEST) if stat.S_ISREG(os.fstat(fd).st_mode) else b""
