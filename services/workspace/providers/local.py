"""Provider `local`: directories of this machine, processes of this instance's user.

It separates sessions from each other's directories by name only: what one process may do,
the others may. Use it where the agents are trusted.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import stat
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from services.common.errors import InvalidArgument
from services.common.logs import get_logger
from services.common.validation import check_text
from services.workspace.exec.forkserver import ForkServer
from services.workspace.exec.process import Process
from services.workspace.providers import directories
from services.workspace.providers.files import Tree
from services.workspace.providers.labels import Label
from services.workspace.providers.registry import Refused, Unusable, Vanished
from services.workspace.workspaces import Origin, Workspace, outside_root

NAME: Final = "local"

_log: Final = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class LocalProvider:
    """See the module. All paths are absolute and free of links; `default_directory` may be empty.

    `variables` are this instance's own that commands may inherit.
    """

    root: str
    default_directory: str
    state_directory: str
    enabled: bool
    fork_server: ForkServer
    variables: Mapping[str, str]
    name: str = NAME

    def root_of(self, project: str, workspace_id: str) -> str:
        """See Provider."""
        return str(Path(self.state_directory, project, workspace_id))

    def accept(self, field: str, directory: str) -> str:
        """See Provider."""
        check_text(field, directory)
        if not Path(directory).is_absolute():
            raise InvalidArgument.of(field, "must be an absolute path")
        resolved = os.path.realpath(directory)
        self._confine(field, directory, resolved)
        try:
            is_directory = stat.S_ISDIR(Path(resolved).stat().st_mode)
        except OSError as error:
            raise InvalidArgument.of(field, f"{error.strerror}: {directory}") from error
        if not is_directory:
            raise InvalidArgument.of(field, f"is not a directory: {directory}")
        return resolved

    async def provision(self, workspace: Workspace, deployment: str) -> None:
        """See Provider."""
        await asyncio.to_thread(self._make, workspace, deployment)

    async def remove(self, workspace: Workspace, deployment: str, give_up: Callable[[], bool]) -> None:
        """See Provider. What has no label of ours was not made by us."""
        await asyncio.to_thread(self._remove, workspace, deployment, give_up)

    async def check(self, workspace: Workspace) -> None:
        """See Provider."""
        self._check(workspace)

    async def environment(self, workspace: Workspace) -> Mapping[str, str]:
        """See Provider."""
        return self.variables

    async def spawn(self, workspace: Workspace, directory: str, terminal: tuple[int, int] | None) -> Process:
        """See Provider."""
        self._check(workspace)
        path = str(Path(workspace.root, check_text("start.directory", directory)))
        try:
            with directories.pinned(path, workspace.root) as fd:
                return self.fork_server.spawn(fd, terminal)
        except directories.Escape:
            raise outside_root("start.directory", directory, workspace.root) from None
        except OSError as error:
            raise InvalidArgument.of("start.directory", f"{error.strerror}: {directory}") from error

    @contextlib.contextmanager
    def files(self, workspace: Workspace) -> Iterator[Tree]:
        """See Provider."""
        with contextlib.ExitStack() as held:
            yield Tree(self._pin(workspace, held), workspace.root)

    def _make(self, workspace: Workspace, deployment: str) -> None:
        Path(self.state_directory).mkdir(mode=0o700, parents=True, exist_ok=True)
        label = Label(workspace, deployment)
        with directories.opened(self.state_directory) as state:
            directories.make(workspace.project, state)
            with directories.opened(workspace.project, state) as project:
                if not label.is_ours(project):
                    self._claim(workspace, label, project)
                directories.make(workspace.workspace_id, project)

    def _remove(self, workspace: Workspace, deployment: str, give_up: Callable[[], bool]) -> None:
        label = Label(workspace, deployment)
        try:
            with (
                directories.opened(self.state_directory) as state,
                directories.opened(workspace.project, state) as project,
            ):
                if not label.is_ours(project):
                    _log.info("nothing of ours to remove", root=workspace.root)
                    return
                directories.refuse_mounts(workspace.root)
                directories.remove_tree(workspace.workspace_id, project, give_up)
                label.remove(project)
        except FileNotFoundError:
            return

    def _check(self, workspace: Workspace) -> None:
        with contextlib.ExitStack() as held:
            self._pin(workspace, held)

    def _pin(self, workspace: Workspace, held: contextlib.ExitStack) -> int:
        """Its root, open until the stack is closed."""
        within = self.root if workspace.origin is Origin.SUPPLIED else self.state_directory
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

    def _claim(self, workspace: Workspace, label: Label, project: int) -> None:
        if Path(workspace.root).exists():
            raise Refused(f"{workspace.root} exists and was not made for this workspace")
        try:
            label.write(project)
        except FileExistsError:
            raise Refused(f"{workspace.root} belongs to another deployment or instance") from None

    def _confine(self, field: str, directory: str, resolved: str) -> None:
        if not directories.is_inside(resolved, self.root):
            raise outside_root(field, directory, self.root)
        if directories.is_inside(resolved, self.state_directory):
            raise InvalidArgument.of(field, f"{directory} lies among the provisioned workspaces")
