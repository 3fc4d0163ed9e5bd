"""How a workspace comes to be: what may be asked for, and the row that says so before anything is made."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Final

from services.common.logs import get_logger
from services.workspace.instance import Instance
from services.workspace.providers.registry import Registry
from services.workspace.sources.wanted import Directory
from services.workspace.specs import Spec
from services.workspace.store.workspaces import Bounds, Plan, WorkspaceStore
from services.workspace.worker import Worker
from services.workspace.workspaces import (
    Intent,
    Origin,
    Source,
    Workspace,
    WorkspaceState,
    binding_required,
    check_instance,
    check_same,
)

_log: Final = get_logger(__name__)


class Provisioning:
    """Stores intents; the worker carries them out."""

    def __init__(
        self,
        instance: Instance,
        store: WorkspaceStore,
        registry: Registry,
        worker: Worker,
        bounds: Bounds,
    ) -> None:
        """`bounds` of what is made."""
        self._instance = instance
        self._store = store
        self._registry = registry
        self._worker = worker
        self._bounds = bounds

    async def provision(self, intent: Intent) -> Workspace:
        """The stored workspace, now or from an earlier call with the same content."""
        self._instance.require()
        stored = await self._store.find(intent.project, intent.workspace_id)
        if stored is None:
            stored = await self._store.insert(intent, self._plan(intent))
            self._tell(stored)
            self._worker.wake()
        return check_same(check_instance(stored, self._instance.instance_id), intent)

    def _plan(self, intent: Intent) -> Plan:
        here = self._instance.instance_id
        if intent.asked is None:
            return Plan(Origin.SUPPLIED, WorkspaceState.READY, self._supplied(intent), here)
        provider = self._registry.enabled(intent.provider)
        spec = provider.complete(intent.asked)
        if isinstance(spec.source, Directory):
            root = spec.source.path
        else:
            root = provider.root_of(intent.project, intent.workspace_id)
        return Plan(Origin.PROVISIONED, WorkspaceState.PROVISIONING, root, here, spec, self._bounds_of(spec))

    def _bounds_of(self, spec: Spec) -> Bounds:
        time = self._bounds.time
        if time is None or spec.setup is None:
            return self._bounds
        return replace(self._bounds, time=time + timedelta(seconds=spec.setup.timeout))

    def _supplied(self, intent: Intent) -> str:
        provider = self._registry.get(intent.provider)
        if intent.source is Source.BINDING:
            return provider.accept("binding.local.directory", intent.directory)
        if not provider.default_directory:
            raise binding_required()
        return provider.accept("source", provider.default_directory)

    def _tell(self, stored: Workspace) -> None:
        if stored.source is Source.DEFAULT:
            _log.warning(
                "a session that names no directory gets the default one",
                project=stored.project,
                session=stored.session_id,
                directory=stored.root,
            )
