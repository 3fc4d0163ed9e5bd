"""What containers are made on: directories of this machine, whose they are, and networks of the engine."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from moorage.common.v1.errors_pb2 import ErrorReason

from services.common.errors import InvalidArgument
from services.workspace.docker import writable
from services.workspace.docker.containers import HOME, User
from services.workspace.docker.exec.helper import HELPER_PATH
from services.workspace.docker.exec.mount import Mount, Seen
from services.workspace.providers import directories, provisioned, roots
from services.workspace.providers.registry import Unusable
from services.workspace.sources.wanted import Directory
from services.workspace.specs import Network, Spec
from services.workspace.workspaces import Workspace

# In a container these are its agent's to change, or ours to write to as root: nothing is mounted there.
_CONTAINERS_OWN: Final = (HOME, str(Path(HELPER_PATH).parent))
_NO_SOURCES: Final = "no directory can be a source: this instance was given no --root"
# No project has such a name.
_HELPERS: Final = ".helper"


@dataclass(frozen=True, slots=True)
class Root:
    """A workspace's directory as it was found: which one it is, and who works in it."""

    path: str
    device: int
    inode: int
    user: User

    @property
    def mount(self) -> Mount:
        """As a container has to have it."""
        return Mount(self.path, Seen(self.device, self.inode))


@dataclass(frozen=True, slots=True)
class Ground:
    """The engine's bridge network, the state directory, and who containers run as.

    Directories that are sources lie in `root`; there are none when it is empty. `socket` is the
    engine's, without links; empty when it has none here. Instances may share a state directory.
    """

    bridge: str
    state_directory: str
    user: User
    instance_id: str
    root: str = ""
    socket: str = ""

    def barred(self) -> str:
        """Why no directory of its own can be mounted; empty when they can. Blocks. OSError."""
        return _own_of_containers(self.state_directory) or _not_executable(self.state_directory)

    @property
    def helper_directory(self) -> str:
        """Where this instance's containers have the helper from."""
        return str(Path(self.state_directory, _HELPERS, self.instance_id))

    def place(self, project: str, workspace_id: str) -> str:
        """Where what is made for a workspace lies: its directory, unless that is a source, and its home."""
        return str(Path(self.state_directory, project, workspace_id))

    def network(self, policy: Network) -> str:
        """The engine's name of a network."""
        return self.bridge if policy is Network.BRIDGE else "none"

    def accept(self, field: str, directory: str) -> str:
        """A directory that is to be a source, without links; InvalidArgument naming the field."""
        if not self.root:
            raise InvalidArgument.of(field, _NO_SOURCES)
        resolved = roots.accept(field, directory, self.root, self.state_directory)
        if within := self._kept(resolved):
            raise InvalidArgument.of(field, f"{directory} contains {within}")
        if cause := _own_of_containers(resolved) or _made_for_others(resolved):
            raise InvalidArgument.of(field, cause)
        if cause := self._closed(resolved):
            raise InvalidArgument.of(field, cause, reason=ErrorReason.ERROR_REASON_DIRECTORY_NOT_WRITABLE)
        return resolved

    def pin(self, workspace: Workspace, held: contextlib.ExitStack) -> int:
        """Its directory, open until the stack is closed. Vanished, Unusable."""
        if not isinstance(spec_of(workspace).source, Directory):
            return roots.pin(workspace, self.state_directory, held)
        # It was accepted under other settings, perhaps.
        if not self.root:
            raise Unusable(_NO_SOURCES)
        if within := self._kept(workspace.root):
            raise Unusable(f"{workspace.root} contains {within}")
        if cause := _own_of_containers(workspace.root):
            raise Unusable(cause)
        if directories.is_inside(workspace.root, self.state_directory):
            raise Unusable(f"{workspace.root} lies among the provisioned workspaces")
        return roots.pin(workspace, self.root, held)

    @contextlib.contextmanager
    def found(self, workspace: Workspace) -> Iterator[Root]:
        """The same, as a container has to have it: what is open is not replaced by another of its number."""
        with contextlib.ExitStack() as held:
            yield self.root_of(workspace, self.pin(workspace, held))

    def root_of(self, workspace: Workspace, descriptor: int) -> Root:
        """What an open directory is, and who works there."""
        status = os.fstat(descriptor)
        return Root(workspace.root, status.st_dev, status.st_ino, self.user_of(descriptor))

    def user_of(self, descriptor: int) -> User:
        """Who works in an open directory, and owns what is made there: its owner, never root or its group.

        The instance itself, if that is not for it to choose.
        """
        status = os.fstat(descriptor)
        if os.geteuid() != 0 or status.st_uid == 0:
            return self.user
        return User(status.st_uid, status.st_gid or self.user.gid)

    def _closed(self, directory: str) -> str:
        """Why nothing could be made in a directory by those who would work there; empty when it can."""
        if os.geteuid() != 0:
            # What the instance itself may do there was for its operator to choose.
            return ""
        with contextlib.suppress(OSError), directories.opened(directory) as descriptor:
            return writable.why_not(descriptor, self.user_of(descriptor), directory)
        return ""

    def owner(self, user: User) -> tuple[int, int] | None:
        """Whom to give what is made for that user; None when it is this instance's anyway."""
        return (user.uid, user.gid) if os.geteuid() == 0 else None

    def _kept(self, directory: str) -> str:
        """What must not be mounted, or must not be hidden in a container, and lies there; or nothing."""
        kept = {
            "the provisioned workspaces": self.state_directory,
            "the engine's socket": self.socket,
            "what every container has of its own": HELPER_PATH,
            "the home directory of containers": HOME,
        }
        inside = (what for what, path in kept.items() if path and directories.is_inside(path, directory))
        return next(inside, "")


def _own_of_containers(directory: str) -> str:
    """Why a directory cannot be mounted where it is, if it lies in what a container has of its own."""
    inside = (own for own in _CONTAINERS_OWN if directories.is_inside(directory, own))
    return next((f"{directory} lies in {own}, which containers have of their own" for own in inside), "")


def _made_for_others(directory: str) -> str:
    """Why a directory is none to choose, if it lies in what an instance made, perhaps one of long ago."""
    path = Path(directory)
    made = (each for each in (path, *path.parents) if provisioned.is_made(each))
    return next((f"{directory} lies in {each}, which was made for a workspace" for each in made), "")


def _not_executable(directory: str) -> str:
    """Why the helper cannot be executed from a directory, which need not be there yet."""
    there = next(each for each in (Path(directory), *Path(directory).parents) if each.exists())
    if os.statvfs(there).f_flag & os.ST_NOEXEC:
        return f"{directory} is mounted noexec, and containers execute their helper from there"
    return ""


def spec_of(workspace: Workspace) -> Spec:
    """What it is to be; a container's workspace is always made, and has one."""
    return workspace.spec or Spec()
