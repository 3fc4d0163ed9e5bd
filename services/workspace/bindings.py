"""What a session stores about its workspace, and whether what it shows later is that (T10)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, TypeAlias

from services.workspace.workspaces import BindingUnresolved, Workspace

# Directories of the instance's own machine; whatever else makes workspaces is a cloud provider.
_LOCAL: Final = "local"


@dataclass(frozen=True, slots=True)
class LocalBinding:
    """A directory of the instance's machine, as an absolute path."""

    directory: str

    kind = "local"

    def __str__(self) -> str:
        """For people."""
        return self.directory


@dataclass(frozen=True, slots=True)
class CloudBinding:
    """A workspace that a provider made; `workspace_ref` is its id here."""

    provider: str
    workspace_ref: str

    kind = "cloud"

    def __str__(self) -> str:
        """For people."""
        return f"{self.workspace_ref or 'none'} of provider {self.provider or 'none'}"


Binding: TypeAlias = LocalBinding | CloudBinding


def binding_of(workspace: Workspace) -> Binding:
    """What the session stores."""
    if workspace.provider == _LOCAL:
        return LocalBinding(workspace.root)
    return CloudBinding(workspace.provider, workspace.workspace_id)


def check_binding(workspace: Workspace, shown: Binding) -> None:
    """BindingUnresolved unless it is the workspace's own."""
    own = binding_of(workspace)
    if shown != own:
        raise BindingUnresolved(kind=shown.kind, cause=f"the workspace is {own}, not {shown}")
