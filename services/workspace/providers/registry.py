"""What a provider is, and which ones an instance has."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from typing import Protocol

from services.workspace.exec.process import Process
from services.workspace.providers.files import Tree
from services.workspace.workspaces import ProviderUnavailable, Workspace


class Refused(Exception):
    """The workspace can never be made; the text says why."""


class Unusable(Exception):
    """Nothing can be done in the workspace now; the text says why."""


class Vanished(Unusable):
    """Its directory is not there any more."""


class Provider(Protocol):
    """A way to make workspaces, to remove them, and to run processes in them.

    Nothing here blocks the event loop but a few system calls, unless it says so. `provision` and
    `remove` are repeated until they have succeeded, also by a later process; any error but
    Refused means: try again. Whatever is cancelled leaves nothing that a repetition, or the
    collector, does not find.
    """

    @property
    def name(self) -> str:
        """As callers name it."""
        ...

    @property
    def enabled(self) -> bool:
        """Whether it makes new ones. Removal always works (W4)."""
        ...

    @property
    def root(self) -> str:
        """Supplied directories must lie inside it; empty when none can be supplied."""
        ...

    @property
    def default_directory(self) -> str:
        """Used when a session names none; empty when there is none."""
        ...

    def root_of(self, project: str, workspace_id: str) -> str:
        """Where a provisioned workspace will be."""
        ...

    def accept(self, field: str, directory: str) -> str:
        """The supplied directory without links; InvalidArgument naming the field."""
        ...

    async def provision(self, workspace: Workspace, deployment: str) -> None:
        """Make it. Refused when it can never be made."""
        ...

    async def remove(self, workspace: Workspace, deployment: str, give_up: Callable[[], bool]) -> None:
        """Remove what this deployment made; nothing is fine. InterruptedError when told to give up."""
        ...

    async def check(self, workspace: Workspace) -> None:
        """Return when processes could run in it, else raise Unusable."""
        ...

    async def environment(self, workspace: Workspace) -> Mapping[str, str]:
        """The variables that its processes may inherit. Raises Unusable."""
        ...

    async def spawn(self, workspace: Workspace, directory: str, terminal: tuple[int, int] | None) -> Process:
        """What a command can be started with in `directory`, relative to the root or inside it.

        `terminal` is (columns, rows). Raises Unusable, InvalidArgument, StartFailed. It does not
        suspend between making it and giving it to the caller, and kills it when it is cancelled.
        """
        ...

    def files(self, workspace: Workspace) -> AbstractContextManager[Tree]:
        """Its files, within the block. It blocks, and raises Unusable when entered."""
        ...


class Registry:
    """The providers of an instance, by name."""

    def __init__(self, providers: Iterable[Provider]) -> None:
        """Names are unique."""
        self._providers = {provider.name: provider for provider in providers}

    def get(self, name: str) -> Provider:
        """The provider of this name; ProviderUnavailable."""
        if name not in self._providers:
            raise ProviderUnavailable(provider=name, cause="it is not registered")
        return self._providers[name]

    def enabled(self, name: str) -> Provider:
        """The provider of this name, if it makes new workspaces."""
        provider = self.get(name)
        if not provider.enabled:
            raise ProviderUnavailable(provider=name, cause="provisioning is disabled")
        return provider

    def by_name(self) -> list[Provider]:
        """All, in the order of their names."""
        return [self._providers[name] for name in sorted(self._providers)]
