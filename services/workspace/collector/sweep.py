"""What a provider has against what is stored: orphans and ghosts (W3, W8).

The provider is asked first and the rows are read then: a row is stored before anything is made
(W1), so what was found and has none is nobody's.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from services.common.failpoints import failpoint
from services.common.logs import get_logger
from services.workspace.changes import Changes
from services.workspace.collector.garbage import Garbage, GarbageKind, cause_to_remove
from services.workspace.collector.gauges import Gauges
from services.workspace.exec.execs import Execs
from services.workspace.instance import Instance
from services.workspace.providers.found import Found, Thing
from services.workspace.providers.registry import Provider, Silent, Unasked, Vanished
from services.workspace.store.collecting import CollectingStore
from services.workspace.store.workspaces import WorkspaceStore
from services.workspace.workspaces import Workspace, WorkspaceState, not_ready

# A provider whose engine hangs is one that cannot be asked.
_PATIENCE: Final = 60.0

_log: Final = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Sweep:
    """Looks at one provider after the other."""

    instance: Instance
    collecting: CollectingStore
    workspaces: WorkspaceStore
    execs: Execs
    changes: Changes

    async def run(
        self, provider: Provider, gauges: Gauges, *, dry_run: bool
    ) -> AsyncGenerator[Garbage, None]:
        """What is wrong, put right as it is given unless it is a dry run. Raises Unasked.

        A provider that falls silent ends it: what is left is for the next pass, not for one patience each.
        """
        try:
            found = await self._survey(provider)
        except Unasked:
            if provider.enabled or await self.collecting.has_any(provider.name):
                raise
            # Nobody uses it here.
            return
        gauges.surveyed(provider.name, found)
        await failpoint(f"workspace.collect.{provider.name}.after_survey")
        async for garbage in self._orphans(provider, found, dry_run=dry_run):
            yield garbage
        async for garbage in self._ghosts(provider, found, dry_run=dry_run):
            yield garbage

    async def _survey(self, provider: Provider) -> Sequence[Found]:
        deployment = self.instance.marker.deployment
        try:
            async with asyncio.timeout(_PATIENCE):
                return await provider.survey(deployment, self.instance.instance_id)
        except TimeoutError:
            raise Unasked("it did not answer in time") from None
        except Unasked:
            raise
        except Exception as error:  # an answer that is none says nothing either
            raise Unasked(f"{type(error).__name__}: {error}") from error

    async def _orphans(
        self, provider: Provider, found: Sequence[Found], *, dry_run: bool
    ) -> AsyncGenerator[Garbage, None]:
        standings = await self.collecting.standings({each.key for each in found})
        for each in found:
            if cause := cause_to_remove(each, standings.get(each.key)):
                garbage = _garbage(GarbageKind.ORPHAN, provider, each, each.resource, cause)
                if dry_run:
                    yield garbage
                    continue
                try:
                    tried = await self._discard(provider, each, garbage)
                except Silent:
                    yield garbage
                    raise
                if tried:
                    yield tried

    async def _discard(self, provider: Provider, found: Found, garbage: Garbage) -> Garbage | None:
        """None when somebody needs it meanwhile, or has removed it. Raises Silent."""
        root = found.resource if found.thing is Thing.DIRECTORY else ""
        await failpoint("workspace.collect.before_discard")
        standing = await self.collecting.forbid(found.key, provider.name, root)
        if not cause_to_remove(found, standing):
            return None
        self.instance.require()
        try:
            deployment, instance_id = self.instance.marker.deployment, self.instance.instance_id
            was_there = await provider.discard(found, deployment, instance_id)
        except Silent:
            raise
        except Exception as error:  # noqa: BLE001 (the next one may go)
            _log.warning("an orphan is still there", resource=found.resource, error=str(error))
            return garbage
        return replace(garbage, done=True) if was_there else None

    async def _ghosts(
        self, provider: Provider, found: Sequence[Found], *, dry_run: bool
    ) -> AsyncGenerator[Garbage, None]:
        usable = {(*each.key, each.generation) for each in found if each.usable}
        for workspace in await self.collecting.made(provider.name):
            key = workspace.project, workspace.workspace_id
            if (*key, None) in usable or (*key, workspace.generation) in usable:
                continue
            if cause := await _cause_of_loss(provider, workspace):
                garbage = _garbage(GarbageKind.GHOST, provider, workspace, workspace.root, cause)
                if dry_run:
                    yield garbage
                elif await self._lose(workspace, cause):
                    yield replace(garbage, done=True)

    async def _lose(self, workspace: Workspace, cause: str) -> bool:
        """Whether it still was READY. Its execs end: their callers are told why."""
        self.instance.require()
        if not await self.workspaces.settle(workspace, WorkspaceState.LOST, state_reason=cause):
            return False
        lost = replace(workspace, state=WorkspaceState.LOST)
        for each in self.execs.of_workspace(workspace.project, workspace.workspace_id):
            each.end(not_ready(lost, cause))
        self.changes.notify()
        return True


async def _cause_of_loss(provider: Provider, workspace: Workspace) -> str:
    """Asked anew, of this one: it may have been made after the provider told what it has. Raises Silent."""
    try:
        await provider.check(workspace)
    except Vanished as error:
        return str(error)
    except Silent:
        raise
    except Exception as error:  # noqa: BLE001 (nothing is known, so nothing is concluded)
        _log.info("a workspace cannot be looked at", workspace=workspace.workspace_id, cause=str(error))
    return ""


def _garbage(
    kind: GarbageKind, provider: Provider, about: Found | Workspace, resource: str, cause: str
) -> Garbage:
    return Garbage(kind, provider.name, about.project, about.workspace_id, resource, cause)
