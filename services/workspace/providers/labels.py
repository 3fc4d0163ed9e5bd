"""Labels beside provisioned directories: whose they are (W1). What is not ours is never touched."""

from __future__ import annotations

import contextlib
import json
import os
from typing import Final

from services.workspace.workspaces import Workspace

_READ: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC
_WRITE: Final = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
_LONGEST: Final = 4096


class Label:
    """A file beside a provisioned directory; its name cannot be that of a workspace."""

    def __init__(self, workspace: Workspace, deployment: str) -> None:
        """What it must say."""
        self._name = f"{workspace.workspace_id}.json"
        self._content = json.dumps(
            {
                "deployment": deployment,
                "project": workspace.project,
                "workspace_id": workspace.workspace_id,
                "instance_id": workspace.instance_id,
            }
        ).encode()

    def is_ours(self, parent: int) -> bool:
        """Whether it is there and says exactly this."""
        try:
            fd = os.open(self._name, _READ, dir_fd=parent)
        except FileNotFoundError:
            return False
        with os.fdopen(fd, "rb") as file:
            return file.read(_LONGEST) == self._content

    def write(self, parent: int) -> None:
        """Put it there whole or not at all; FileExistsError when there is one."""
        draft = f"{self._name}.{os.urandom(4).hex()}"
        with os.fdopen(os.open(draft, _WRITE, 0o600, dir_fd=parent), "wb") as file:
            file.write(self._content)
        try:
            os.link(draft, self._name, src_dir_fd=parent, dst_dir_fd=parent)
        finally:
            os.unlink(draft, dir_fd=parent)

    def remove(self, parent: int) -> None:
        """Take it away."""
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self._name, dir_fd=parent)
