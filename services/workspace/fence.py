"""The fence of workspaces: the highest token, in the row and in this instance's memory (F4, F6)."""

from __future__ import annotations

from dataclasses import dataclass

from moorage.common.v1.grant_pb2 import Grant

from services.fencing.grants import GrantClaims
from services.fencing.verifier import GrantVerifier
from services.workspace.exec.execs import Execs, SessionKey, stale
from services.workspace.store.workspaces import WorkspaceStore
from services.workspace.workspaces import Workspace, check_instance
from services.workspace.writes import Writes


@dataclass(frozen=True, slots=True)
class Shown:
    """A good grant for a workspace that this instance carries, not written down yet."""

    workspace: Workspace
    grant: Grant
    claims: GrantClaims

    @property
    def session(self) -> SessionKey:
        """Whose execs it fences."""
        return SessionKey(self.workspace.project, self.workspace.session_id)


class Fence:
    """Judges grants that are shown with a claim, an exec or a file write."""

    def __init__(
        self,
        store: WorkspaceStore,
        verifier: GrantVerifier,
        execs: Execs,
        writes: Writes,
        instance_id: str,
    ) -> None:
        """`instance_id` is this instance's."""
        self._store = store
        self._verifier = verifier
        self._execs = execs
        self._writes = writes
        self._instance_id = instance_id

    async def examine(self, project: str, workspace_id: str, grant: Grant) -> Shown:
        """Check a grant outside of any transaction: a missing workspace comes first, then the rest.

        Whatever takes time, such as fetching a key, happens here; `write_down` finds it done.
        """
        workspace = check_instance(await self._store.get(project, workspace_id), self._instance_id)
        return Shown(workspace, grant, await self._verifier.verify(grant, workspace.resource))

    async def write_down(self, shown: Shown) -> Workspace:
        """Raise the fence to the shown token; StaleOwner when a higher one was seen.

        File writes of lower tokens are over when it returns. However it ends, also when the caller
        goes away while the commit is on its way, lower execs end: owner has granted the token, and
        that is enough to know that theirs is over.
        """
        workspace = shown.workspace

        async def judge(locked: Workspace) -> int:
            return (await self._verifier.verify(shown.grant, locked.resource)).token

        try:
            stored, token = await self._store.raise_fence(workspace.project, workspace.workspace_id, judge)
        finally:
            self._execs.raise_token(shown.session, shown.claims.token)
        if token < stored.token:
            raise stale(shown.session, token, stored.token)
        await self._writes.until_over(shown.session, below=token)
        return stored
