"""Creating a session: its workspace first, then its row, and never the one without the other (W2)."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Final, NamedTuple

from moorage.common.v1 import provision_pb2
from moorage.workspace.v1 import workspace_pb2

from services.common.errors import Unavailable
from services.common.failpoints import failpoint
from services.common.logs import get_logger
from services.common.validation import mint_id
from services.session import bindings, runners
from services.session.clients import Leases, Workspaces
from services.session.requests import RequestKey
from services.session.runners import Runner
from services.session.sessions import NewSession, Session
from services.session.settled import settled
from services.session.store.sessions import SessionStore
from services.session.wishes import SessionWish

_log: Final = get_logger(__name__)


class _Intent(NamedTuple):
    """A session that may be stored `by` a time of the database's clock, now that its workspace's intent is."""

    draft: NewSession
    by: datetime


class Creation:
    """Makes sessions.

    Each attempt has a workspace id of its own: whoever loses a race, fails, or is cancelled
    before its session is stored removes the workspace of its own attempt and no other.
    """

    def __init__(
        self, sessions: SessionStore, workspaces: Workspaces, leases: Leases, *, pool: str, window: float
    ) -> None:
        """`pool` is the pool of runners that will serve the sessions.

        `window`: seconds between a workspace's intent and its session's row, at most. The workspace
        service waits for longer before it takes a workspace for nobody's.
        """
        self._sessions = sessions
        self._workspaces = workspaces
        self._leases = leases
        self._pool = pool
        self._window = timedelta(seconds=window)

    async def create(self, wish: SessionWish, key: RequestKey) -> Session:
        """The session, also when an earlier call with this key has made it."""
        repeated = await self._sessions.find_repeated(key, wish.session_id)
        if repeated is not None:
            return repeated
        live = await self._live_runners()
        runners.check_profile(wish.profile, self._pool, live)
        # What is refused anyway need not be made first.
        self._check_network(wish, wish.network, live)
        return await self._make(wish, key, mint_id("ws"), live)

    async def _live_runners(self) -> list[Runner]:
        leases = await self._leases.list_live(runners.PREFIX)
        return [runners.runner_of(lease.holder, lease.endpoint, lease.labels) for lease in leases]

    def _check_network(
        self, wish: SessionWish, network: provision_pb2.NetworkPolicy.ValueType, live: Sequence[Runner]
    ) -> None:
        if network == provision_pb2.NETWORK_POLICY_NONE:
            runners.check_network(wish.profile, "NONE", self._pool, live)

    async def _make(
        self, wish: SessionWish, key: RequestKey, workspace_id: str, live: Sequence[Runner]
    ) -> Session:
        intent: _Intent | None = None
        try:
            made = await self._provision(wish, workspace_id)
            # Without a wish the provider's default holds, and only now is known.
            self._check_network(wish, made.workspace.spec.network, live)
            intent = self._intent(wish, made)
            await failpoint("session.create_session.after_provision")
            session = await settled(self._sessions.create(intent.draft, key, by=intent.by))
        except BaseException as error:
            draft = intent.draft if intent else None
            stored = await settled(self._find_or_discard(wish, workspace_id, draft))
            # The connection was lost while it committed, and the commit stands.
            if stored is not None and isinstance(error, Unavailable):
                return stored
            raise
        if session.workspace_id != workspace_id:
            await settled(self._discard(wish.project, workspace_id))
        return session

    async def _provision(
        self, wish: SessionWish, workspace_id: str
    ) -> workspace_pb2.ProvisionWorkspaceResponse:
        """Have the workspace's intent stored."""
        return await settled(self._workspaces.provision(wish.provisioning(workspace_id)))

    def _intent(self, wish: SessionWish, made: workspace_pb2.ProvisionWorkspaceResponse) -> _Intent:
        """What may be stored, and until when."""
        binding = bindings.from_message(made.binding)
        if wish.source is None and isinstance(binding, bindings.LocalBinding):
            _log.warning(
                "no workspace was named: the session works in the default directory",
                session=wish.session_id,
                directory=binding.directory,
            )
        asked_at: datetime = made.workspace.create_time.ToDatetime(UTC)
        return _Intent(wish.draft(made.workspace.workspace_id, binding), asked_at + self._window)

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
