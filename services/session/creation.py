"""Creating a session: its workspace first, then its row, and never the one without the other (W2)."""

from __future__ import annotations

from typing import Final

from services.common.errors import Unavailable
from services.common.failpoints import failpoint
from services.common.logs import get_logger
from services.common.validation import mint_id
from services.session import bindings, runners
from services.session.clients import Leases, Workspaces
from services.session.requests import RequestKey
from services.session.sessions import NewSession, Session
from services.session.settled import settled
from services.session.store.sessions import SessionStore
from services.session.wishes import SessionWish

_log: Final = get_logger(__name__)


class Creation:
    """Makes sessions.

    Each attempt has a workspace id of its own: whoever loses a race, fails, or is cancelled
    before its session is stored removes the workspace of its own attempt and no other.
    """

    def __init__(self, sessions: SessionStore, workspaces: Workspaces, leases: Leases, *, pool: str) -> None:
        """`pool` is the pool of runners that will serve the sessions."""
        self._sessions = sessions
        self._workspaces = workspaces
        self._leases = leases
        self._pool = pool

    async def create(self, wish: SessionWish, key: RequestKey) -> Session:
        """The session, also when an earlier call with this key has made it."""
        repeated = await self._sessions.find_repeated(key, wish.session_id)
        if repeated is not None:
            return repeated
        await self._check_profile(wish.profile)
        return await self._make(wish, key, mint_id("ws"))

    async def _check_profile(self, profile: str) -> None:
        leases = await self._leases.list_live(runners.PREFIX)
        live = [runners.runner_of(lease.holder, lease.endpoint, lease.labels) for lease in leases]
        runners.check_profile(profile, self._pool, live)

    async def _make(self, wish: SessionWish, key: RequestKey, workspace_id: str) -> Session:
        draft: NewSession | None = None
        try:
            draft = await self._provision(wish, workspace_id)
            await failpoint("session.create_session.after_provision")
            session = await settled(self._sessions.create(draft, key))
        except BaseException as error:
            stored = await settled(self._find_or_discard(wish, workspace_id, draft))
            # The connection was lost while it committed, and the commit stands.
            if stored is not None and isinstance(error, Unavailable):
                return stored
            raise
        if session.workspace_id != workspace_id:
            await settled(self._discard(wish.project, workspace_id))
        return session

    async def _provision(self, wish: SessionWish, workspace_id: str) -> NewSession:
        """Have the workspace's intent stored."""
        provisioned = await settled(self._workspaces.provision(wish.provisioning(workspace_id)))
        binding = bindings.from_message(provisioned.binding)
        if wish.source is None and isinstance(binding, bindings.LocalBinding):
            _log.warning(
                "no workspace was named: the session works in the default directory",
                session=wish.session_id,
                directory=binding.directory,
            )
        return wish.draft(workspace_id, binding)

    async def _find_or_discard(
        self, wish: SessionWish, workspace_id: str, draft: NewSession | None
    ) -> Session | None:
        """The session if it is stored after all; else its workspace is removed.

        When the database does not tell, the workspace stays: removing it under a stored session
        would be worse than leaving it to the workspace service, which finds unclaimed ones.
        """
        try:
            stored = await self._sessions.find_stored(draft) if draft else None
        except Exception as error:  # noqa: BLE001 (the first error is the one to report)
            _log.warning(
                "whether a session is stored is not known; its workspace stays",
                session=wish.session_id,
                workspace=workspace_id,
                error=str(error),
            )
            return None
        if stored is None:
            # Whether there is one is not known when nothing was answered.
            await self._discard(wish.project, workspace_id)
        return stored

    async def _discard(self, project: str, workspace_id: str) -> None:
        try:
            await self._workspaces.delete(project, workspace_id)
        except Exception as error:  # noqa: BLE001 (the first error is the one to report)
            _log.warning(
                "the workspace of a session that was not made could not be deleted",
                workspace=workspace_id,
                error=str(error),
            )
