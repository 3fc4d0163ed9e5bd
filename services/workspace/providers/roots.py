"""Roots of workspaces on this machine: which directories can be one, and holding one open (W7)."""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterator
from pathlib import Path

from services.common.errors import InvalidArgument
from services.common.validation import check_text
from services.workspace.providers import directories
from services.workspace.providers.registry import Unusable, Vanished
from services.workspace.workspaces import Workspace, outside_root


def accept(field: str, directory: str, root: str, state_directory: str) -> str:
    """A supplied directory without links, inside `root`; InvalidArgument naming the field."""
    check_text(field, directory)
    if not Path(directory).is_absolute():
        raise InvalidArgument.of(field, "must be an absolute path")
    resolved = os.path.realpath(directory)
    if not directories.is_inside(resolved, root):
        raise outside_root(field, directory, root)
    if directories.is_inside(resolved, state_directory):
        raise InvalidArgument.of(field, f"{directory} lies among the provisioned workspaces")
    try:
        is_directory = stat.S_ISDIR(Path(resolved).stat().st_mode)
    except OSError as error:
        raise InvalidArgument.of(field, f"{error.strerror}: {directory}") from error
    if not is_directory:
        raise InvalidArgument.of(field, f"is not a directory: {directory}")
    return resolved


def pin(workspace: Workspace, within: str, held: contextlib.ExitStack) -> int:
    """Its root, open until the stack is closed. Vanished, or Unusable when it lies outside `within`."""
    if not directories.is_inside(workspace.root, within):
        # The settings have become narrower since it was stored.
        raise Unusable(f"{workspace.root} lies outside {within}")
    try:
        return held.enter_context(directories.pinned(workspace.root, workspace.root))
    except directories.Escape:
        raise Vanished(f"{workspace.root} leads elsewhere now") from None
    except (FileNotFoundError, NotADirectoryError) as error:
        raise Vanished(f"{workspace.root}: {error.strerror}") from error
    except OSError as error:
        raise Unusable(f"{workspace.root}: {error.strerror}") from error


@contextlib.contextmanager
def start_directory(workspace: Workspace, directory: str) -> Iterator[int]:
    """Where a command is to start, held open; InvalidArgument when it is not inside the root."""
    path = str(Path(workspace.root, check_text("start.directory", directory)))
    try:
        with directories.pinned(path, workspace.root) as descriptor:
            yield descriptor
    except directories.Escape:
        raise outside_root("start.directory", directory, workspace.root) from None
    except OSError as error:
        raise InvalidArgument.of("start.directory", f"{error.strerror}: {directory}") from error
