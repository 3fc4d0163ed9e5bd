"""Workspaces that were made for a session which was never stored (W2)."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from dataclasses import dataclass
from typing import Final

from services.common.clock import Clock
from services.common.errors import MoorageError
from services.common.failpoints import failpoint
from services.common.logs import get_logger
from services.workspace.collector.garbage import Garbage, GarbageKind
from services.workspace.store.claims import ClaimStore, Unclaimed
from services.workspace.workspaces import Workspace

# The workspace that a session is stored with, by project and session id; None when it is not stored.
WorkspaceOf = Callable[[str, str], Awaitable[str | None]]

_AT_ONCE: Final = 500
# Seconds, and one question more, which has a time of its own: a pass is held up no longer.
_ASKING: Final = 5.0

_log: Final = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Claims:
    """Asks the session service; without an answer a workspace is kept.

    It asks from the first pass on, each in its turn: those without an answer hold up no others.
    """

    store: ClaimStore
    workspace_of: WorkspaceOf | None
    clock: Clock

    async def run(self, provider: str, *, dry_run: bool) -> AsyncGenerator[Garbage, None]:
        """Those of a provider that were marked, or would be."""
        if self.workspace_of is None:
            return
        over = self.clock.boottime() + _ASKING
        for each in await self.store.unclaimed(provider, _AT_ONCE):
            if self.clock.boottime() >= over:
                _log.info("the next pass asks about more unclaimed workspaces")
                return
            if not dry_run:
                await self.store.put_last(each.workspace)
            try:
                stored = await self.workspace_of(each.workspace.project, each.workspace.session_id)
            except MoorageError as error:
                _log.info("unclaimed workspaces are kept", cause=str(error))
                return
            await failpoint("workspace.collect.after_ask")
            async for garbage in self._judge(each, stored, dry_run=dry_run):
                yield garbage

    async def _judge(
        self, each: Unclaimed, stored: str | None, *, dry_run: bool
    ) -> AsyncGenerator[Garbage, None]:
        if stored == each.workspace.workspace_id:
            if not dry_run:
                await self.store.claim(each.workspace)
        elif each.late:
            cause = _cause(each.workspace, stored)
            if dry_run or await self.store.abandon(each.workspace, cause):
                yield _garbage(each.workspace, cause, done=not dry_run)


def _cause(workspace: Workspace, stored: str | None) -> str:
    if stored is None:
        return f"session {workspace.session_id} is not stored"
    return f"session {workspace.session_id} has workspace {stored}"


def _garbage(workspace: Workspace, cause: str, *, done: bool) -> Garbage:
    kind = GarbageKind.UNCLAIMED
    return Garbage(
        kind, workspace.provider, workspace.project, workspace.workspace_id, workspace.root, cause, done
    )
