"""What a provider is, and which ones an instance has."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

from services.workspace.exec.process import Process
from services.workspace.providers.files import Tree
from services.workspace.providers.found import Found
from services.workspace.specs import Limits, Network, Spec
from services.workspace.workspaces import ProviderUnavailable, Workspace


class Refused(Exception):
    """The workspace can never be made; the text says why."""


class PassedBy(Exception):
    """Something of an earlier try is in the way and cannot be removed: it takes a new generation."""


class Unusable(Exception):
    """Nothing can be done in the workspace now; the text says why."""


class Vanished(Unusable):
    """Its directory is not there any more."""


class Unasked(Unusable):
    """It is not known at the moment what there is: nothing may be concluded. The text says why."""


class Silent(Unasked):
    """The provider answers nothing: it would say no more of anything else. The text says why."""


@dataclass(frozen=True, slots=True)
class EngineState:
    """An engine as it answered last; `version` is empty if it never did, `cause` if it does now."""

    address: str
    version: str
    missing_images: Sequence[str]
    cause: str


class Provider(Protocol):
    """A way to make workspaces, to remove them, and to run processes in them.

    Nothing here blocks the event loop but a few system calls, unless it says so. `provision` and
    `remove` are repeated until they have succeeded, also by a later process; any error but
    Refused means: try again, PassedBy with the next generation. Whatever is cancelled leaves
    nothing that a repetition, or the collector, does not find.
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

    @property
    def unavailable_cause(self) -> str:
        """Why it cannot make any at the moment, as far as is known; empty when it can."""
        ...

    @property
    def withheld(self) -> str:
        """Why the settings have none made; empty when they have."""
        ...

    async def engine_state(self) -> EngineState | None:
        """Of its engine, looked at anew if that takes no more than a moment; None without one, or with no use for it."""
        ...

    @property
    def images(self) -> Sequence[str]:
        """Those that can be asked for, the default one first; empty when there are none."""
        ...

    @property
    def limits(self) -> Limits:
        """Those that apply when none are asked for, and the most that can be."""
        ...

    def complete(self, spec: Spec) -> Spec:
        """What is asked for with defaults filled in; InvalidArgument when it cannot be had."""
        ...

    def root_of(self, project: str, workspace_id: str) -> str:
        """Where a provisioned workspace will be, unless a directory is its source."""
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

    async def survey(self, deployment: str, instance_id: str) -> Sequence[Found]:
        """All that is labelled as made by this instance for this deployment. Raises Unasked.

        It works like removal: also when no new ones are made.
        """
        ...

    async def discard(self, found: Found, deployment: str, instance_id: str) -> bool:
        """Remove this very thing, and return when it is gone for sure; whether it still was there.

        A directory stays while anything could still use it. Raises Unasked, OSError.
        """
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

    async def reach(self, workspace: Workspace, network: Network) -> None:
        """Let its processes reach what this policy allows, from now on. Raises Unusable."""
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
            raise ProviderUnavailable(provider=name, cause=provider.unavailable_cause)
        return provider

    def by_name(self) -> list[Provider]:
        """All, in the order of their names."""
        return [self._providers[name] for name in sorted(self._providers)]
