"""Directories that we made: STATE/PROJECT/WORKSPACE, each with a label beside it. All of it blocks."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from services.common.logs import get_logger
from services.workspace.providers import directories, labels
from services.workspace.providers.found import Found, Thing
from services.workspace.providers.labels import Label, workspace_named_by
from services.workspace.providers.registry import Refused
from services.workspace.workspaces import Workspace

# No workspace has such a name.
_HOME: Final = ".home"

_log: Final = get_logger(__name__)


def make(workspace: Workspace, deployment: str) -> None:
    """Make its directory and the label. Refused when something else is there."""
    root = Path(workspace.root)
    with _claimed(root, Label.of(workspace, deployment)) as project:
        directories.make(root.name, project)


def make_home(root: str, label: Label, owner: tuple[int, int] | None) -> str:
    """Make a home directory beside where a workspace's own would be, and the label; its path.

    It is for `owner`, a user and a group, or for who runs this. Refused when something else is there.
    """
    path = Path(root)
    with _claimed(path, label) as project:
        directories.make(path.name + _HOME, project)
        try:
            with directories.opened(path.name + _HOME, project) as home:
                if owner is not None:
                    os.fchown(home, *owner)
        except OSError as error:
            if error.errno not in (errno.ENOTDIR, errno.ELOOP):
                raise
            raise Refused(f"{root}{_HOME} is no directory") from error
    return root + _HOME


@contextlib.contextmanager
def _claimed(root: Path, label: Label) -> Iterator[int]:
    """The project's directory, open, in which the label is."""
    state = root.parent.parent
    state.mkdir(mode=0o700, parents=True, exist_ok=True)
    with directories.opened(str(state)) as top:
        directories.make(root.parent.name, top)
        with directories.opened(root.parent.name, top) as project:
            if not label.is_ours(project):
                _claim(root, label, project)
            yield project


def remove(root: str, label: Label, give_up: Callable[[], bool]) -> bool:
    """Remove a directory that has this label, its home, and then the label; whether there was such a label.

    What has no such label was not made by us, and stays. InterruptedError when told to give up.
    """
    path = Path(root)
    try:
        with (
            directories.opened(str(path.parent.parent)) as state,
            directories.opened(path.parent.name, state) as project,
        ):
            label.forget_draft(project)
            if not label.is_ours(project):
                _log.info("nothing of ours to remove", root=root)
                return False
            for each in (path.name, path.name + _HOME):
                directories.refuse_mounts(str(path.with_name(each)))
                directories.remove_tree(each, project, give_up)
            label.remove(project)
    except FileNotFoundError:
        return False
    return True


def is_made(path: Path) -> bool:
    """Whether a directory is a workspace's, or its home, by the label of whichever instance."""
    return labels.is_there(path.parent, path.name.removesuffix(_HOME))


@dataclass(frozen=True, slots=True)
class Owner:
    """Whose directories are looked for."""

    deployment: str
    instance_id: str
    provider: str

    def label(self, project: str, workspace_id: str) -> Label:
        """What one of them must have."""
        return Label(self.deployment, self.instance_id, self.provider, project, workspace_id)


def survey(state_directory: str, owner: Owner, *, usable: bool) -> list[Found]:
    """All directories below the state directory that have a label of the owner's.

    `usable`: whether such a directory, where it is one, shows that its workspace works.
    """
    found: list[Found] = []
    try:
        with directories.opened(state_directory) as state:
            for project in directories.entries_of(state):
                found += _of_project(state_directory, project, state, owner, usable=usable)
    except FileNotFoundError:
        return []
    return found


def _of_project(
    state_directory: str, name: str, state: int, owner: Owner, *, usable: bool
) -> Iterator[Found]:
    try:
        with directories.opened(name, state) as project:
            for entry in sorted(directories.entries_of(project)):
                workspace_id = workspace_named_by(entry)
                if workspace_id and owner.label(name, workspace_id).is_ours(project):
                    yield Found(
                        name,
                        workspace_id,
                        None,
                        Thing.DIRECTORY,
                        str(Path(state_directory, name, workspace_id)),
                        usable and _is_directory(workspace_id, project),
                    )
    except OSError:
        # What cannot be looked at is not known, and nothing follows from it.
        return


def _is_directory(name: str, parent: int) -> bool:
    try:
        return stat.S_ISDIR(os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode)
    except FileNotFoundError:
        return False


def _claim(root: Path, label: Label, project: int) -> None:
    for name in (root.name, root.name + _HOME):
        if _exists(name, project):
            raise Refused(f"{root.with_name(name)} exists and was not made for this workspace")
    try:
        label.write(project)
    except FileExistsError:
        raise Refused(f"{root} belongs to another deployment or instance") from None


def _exists(name: str, parent: int) -> bool:
    """Whatever it is: a link that leads nowhere as well."""
    try:
        os.stat(name, dir_fd=parent, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True
