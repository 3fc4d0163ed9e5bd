"""Where a workspace's processes run, judged anew at each use."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Mapping
from typing import TypeVar

from services.common.errors import DependencyUnavailable, MoorageError
from services.workspace.bindings import Binding, binding_of, check_binding
from services.workspace.exec.process import Process
from services.workspace.providers.files import Tree
from services.workspace.providers.registry import Provider, Registry, Unasked, Unusable, Vanished
from services.workspace.store.workspaces import WorkspaceStore
from services.workspace.workspaces import (
    Origin,
    Workspace,
    WorkspaceState,
    check_ready,
    not_ready,
)

T = TypeVar("T")


class Resolver:
    """Finds the provider of a workspace and notices directories that are gone."""

    def __init__(self, store: WorkspaceStore, registry: Registry) -> None:
        """The providers of this instance."""
        self._store = store
        self._registry = registry

    async def resolve(self, workspace: Workspace, shown: Binding) -> Provider:
        """The provider in whose hands the workspace of a stored binding is; BindingUnresolved, WorkspaceNotReady."""
        check_binding(workspace, shown)
        provider = self._registry.get(check_ready(workspace).provider)
        try:
            await provider.check(workspace)
        except Unusable as error:
            await self._refuse(workspace, error)
        return provider

    async def notice(self, project: str, workspace_id: str) -> None:
        """A workspace that has vanished is LOST from now on; of anything else nothing is said."""
        with contextlib.suppress(MoorageError):
            workspace = await self._store.get(project, workspace_id)
            await self.resolve(workspace, binding_of(workspace))

    async def environment(self, workspace: Workspace) -> Mapping[str, str]:
        """The variables that its processes may inherit; WorkspaceNotReady."""
        provider = self._registry.get(check_ready(workspace).provider)
        try:
            return await provider.environment(workspace)
        except Unusable as error:
            await self._refuse(workspace, error)
            raise

    async def spawn(self, workspace: Workspace, directory: str, terminal: tuple[int, int] | None) -> Process:
        """What a command can be started with; WorkspaceNotReady, InvalidArgument, StartFailed."""
        provider = self._registry.get(check_ready(workspace).provider)
        try:
            return await provider.spawn(workspace, directory, terminal)
        except Unusable as error:
            await self._refuse(workspace, error)
            raise

    async def use(
        self,
        workspace: Workspace,
        what: Callable[[Tree], T],
        run: Callable[[Callable[[], T]], Awaitable[T]] = asyncio.to_thread,
    ) -> T:
        """Do something with a workspace's files, which blocks, in a thread; WorkspaceNotReady."""
        provider = self._registry.get(check_ready(workspace).provider)

        def work() -> T:
            # Opened and closed by the thread: it goes on when the caller does not.
            with provider.files(workspace) as tree:
                return what(tree)

        try:
            return await run(work)
        except Unusable as error:
            await self._refuse(workspace, error)
            raise

    async def _refuse(self, workspace: Workspace, error: Unusable) -> None:
        """What we made and is gone is LOST; what was supplied may come back; of what is not known nothing is said."""
        if isinstance(error, Unasked):
            raise DependencyUnavailable(dependency=workspace.provider, cause=str(error)) from error
        if isinstance(error, Vanished) and workspace.origin is Origin.PROVISIONED:
            await self._store.settle(workspace, WorkspaceState.LOST, state_reason=str(error))
            workspace = await self._store.get(workspace.project, workspace.workspace_id)
        raise not_ready(workspace, str(error)) from error
