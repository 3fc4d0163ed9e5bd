"""Workspaces whose time is over; the worker removes what is marked here."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from dataclasses import dataclass
from typing import Final

from services.workspace.collector.garbage import Garbage, GarbageKind
from services.workspace.exec.execs import Execs
from services.workspace.store.overdue import OverdueStore
from services.workspace.workspaces import Workspace

_AT_ONCE: Final = 100


@dataclass(frozen=True, slots=True)
class Overdue:
    """Asks no provider: time passes whatever becomes of the engine."""

    store: OverdueStore
    execs: Execs

    async def run(self, provider: str, *, dry_run: bool) -> AsyncGenerator[Garbage, None]:
        """Those of a provider that were marked, or would be. What runs in a workspace is using it."""
        for each in await self.store.expire(provider, _AT_ONCE, dry_run=dry_run):
            yield _garbage(GarbageKind.EXPIRED, each, dry_run=dry_run)
        in_use = {(each.session.project, each.workspace_id) for each in self.execs.all()}
        for each in await self.store.retire(provider, _AT_ONCE, in_use, dry_run=dry_run):
            yield _garbage(GarbageKind.IDLE, each, dry_run=dry_run)


def _garbage(kind: GarbageKind, marked: Workspace, *, dry_run: bool) -> Garbage:
    return Garbage(
        kind,
        marked.provider,
        marked.project,
        marked.workspace_id,
        marked.root,
        marked.state_reason,
        done=not dry_run,
    )
