"""Provider `local`: directories of this machine, processes of this instance's user.

It separates sessions from each other's directories by name only: what one process may do,
the others may. Use it where the agents are trusted.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from services.common.errors import InvalidArgument
from services.workspace.exec.forkserver import ForkServer
from services.workspace.exec.process import Process
from services.workspace.providers import provisioned, roots
from services.workspace.providers.files import Tree
from services.workspace.providers.found import Found
from services.workspace.providers.labels import Label
from services.workspace.providers.registry import Unasked, Unusable
from services.workspace.sources.wanted import Directory
from services.workspace.specs import Limits, Network, Spec
from services.workspace.workspaces import Origin, Workspace

NAME: Final = "local"


@dataclass(frozen=True, slots=True)
class LocalProvider:
    """See the module. All paths are absolute and free of links; `default_directory` may be empty.

    `variables` are this instance's own that commands may inherit. `barred` says why nothing may run
    here, and is empty where it may.
    """

    root: str
    default_directory: str
    state_directory: str
    enabled: bool
    fork_server: ForkServer
    variables: Mapping[str, str]
    name: str = NAME
    barred: str = ""

    @property
    def unavailable_cause(self) -> str:
        """See Provider."""
        return self.withheld

    @property
    def withheld(self) -> str:
        """See Provider."""
        return self.barred or ("" if self.enabled else "provisioning is disabled")

    async def engine_state(self) -> None:
        """See Provider."""

    @property
    def images(self) -> Sequence[str]:
        """See Provider."""
        return ()

    @property
    def limits(self) -> Limits:
        """See Provider."""
        return Limits()

    def complete(self, spec: Spec) -> Spec:
        """See Provider. Nothing bounds processes of the instance's user on its own machine."""
        if spec.image:
            raise InvalidArgument.of("provision.image", "provider local has no images")
        if spec.limits != Limits():
            raise InvalidArgument.of("provision.limits", "provider local cannot keep any")
        if isinstance(spec.source, Directory):
            raise InvalidArgument.of("provision.source.path", "bind the directory itself to provider local")
        _check_network("provision.network", spec.network)
        if spec.setup is not None and spec.setup.network:
            _check_network("provision.setup.network", Network(spec.setup.network))
        return replace(spec, network=Network.HOST)

    def root_of(self, project: str, workspace_id: str) -> str:
        """See Provider."""
        return str(Path(self.state_directory, project, workspace_id))

    def accept(self, field: str, directory: str) -> str:
        """See Provider."""
        if self.barred:
            raise InvalidArgument.of(field, self.barred)
        return roots.accept(field, directory, self.root, self.state_directory)

    async def provision(self, workspace: Workspace, deployment: str) -> None:
        """See Provider."""
        await asyncio.to_thread(provisioned.make, workspace, deployment)

    async def remove(self, workspace: Workspace, deployment: str, give_up: Callable[[], bool]) -> None:
        """See Provider. What has no label of ours was not made by us."""
        await asyncio.to_thread(provisioned.remove, workspace.root, Label.of(workspace, deployment), give_up)

    async def survey(self, deployment: str, instance_id: str) -> Sequence[Found]:
        """See Provider."""
        owner = provisioned.Owner(deployment, instance_id, self.name)
        try:
            return await asyncio.to_thread(provisioned.survey, self.state_directory, owner, usable=True)
        except OSError as error:
            raise Unasked(f"{self.state_directory}: {error.strerror}") from error

    async def discard(self, found: Found, deployment: str, instance_id: str) -> bool:
        """See Provider."""
        label = provisioned.Owner(deployment, instance_id, self.name).label(*found.key)
        given_up = threading.Event()
        try:
            return await asyncio.to_thread(provisioned.remove, found.resource, label, given_up.is_set)
        finally:
            # The thread of a call that was cancelled would go on.
            given_up.set()

    async def check(self, workspace: Workspace) -> None:
        """See Provider."""
        self._check(workspace)

    async def environment(self, workspace: Workspace) -> Mapping[str, str]:
        """See Provider."""
        return self.variables

    async def reach(self, workspace: Workspace, network: Network) -> None:
        """See Provider. There is one policy only."""

    async def spawn(self, workspace: Workspace, directory: str, terminal: tuple[int, int] | None) -> Process:
        """See Provider."""
        self._check(workspace)
        with roots.start_directory(workspace, directory) as descriptor:
            return self.fork_server.spawn(descriptor, terminal)

    @contextlib.contextmanager
    def files(self, workspace: Workspace) -> Iterator[Tree]:
        """See Provider."""
        with contextlib.ExitStack() as held:
            yield Tree(self._pin(workspace, held), workspace.root)

    def _check(self, workspace: Workspace) -> None:
        if self.barred:
            raise Unusable(self.barred)
        with contextlib.ExitStack() as held:
            self._pin(workspace, held)

    def _pin(self, workspace: Workspace, held: contextlib.ExitStack) -> int:
        """Its root, open until the stack is closed."""
        within = self.root if workspace.origin is Origin.SUPPLIED else self.state_directory
        return roots.pin(workspace, within, held)


def _check_network(field: str, network: Network) -> None:
    if network not in (Network.UNSPECIFIED, Network.HOST):
        raise InvalidArgument.of(field, "provider local shares the network of its instance's machine")
