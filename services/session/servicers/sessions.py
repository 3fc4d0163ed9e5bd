"""SessionService: the RPCs about sessions."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Mapping
from typing import Final

from moorage.owner.v1 import lease_pb2
from moorage.session.v1 import session_pb2
from moorage.workspace.v1 import workspace_pb2

from services.common.errors import InvalidArgument, MoorageError
from services.common.logs import bind, get_logger
from services.common.pages import page_size
from services.common.validation import check_id, check_request_id, check_text
from services.session import convert, newest
from services.session.checks import check_approval_policy, check_labels
from services.session.clients import Leases, Workspaces
from services.session.creation import Creation
from services.session.limits import check_limits
from services.session.requests import key_of
from services.session.sessions import Session, SessionChange
from services.session.store.sessions import SessionStore
from services.session.store.views import ViewStore
from services.session.watch.waiting import waiting_time
from services.session.wishes import check_wish

_log: Final = get_logger(__name__)

# How long a read waits for what it tells besides the session itself.
_PATIENCE: Final = 1.0
_CHANGEABLE: Final = frozenset({"labels", "approval_policy", "limits"})


class SessionMethods:
    """Unpacks requests, lets the stores and the domain work, packs responses."""

    def __init__(
        self,
        creation: Creation,
        sessions: SessionStore,
        views: ViewStore,
        workspaces: Workspaces,
        leases: Leases,
        *,
        default_profile: str,
    ) -> None:
        """`default_profile` is the agent of a session that names none."""
        self._creation = creation
        self._sessions = sessions
        self._views = views
        self._workspaces = workspaces
        self._leases = leases
        self._default_profile = default_profile

    async def create(
        self, project: str, request: session_pb2.CreateSessionRequest, remaining: float | None
    ) -> session_pb2.CreateSessionResponse:
        """CreateSession; `remaining` is how many seconds the caller waits, None without a bound."""
        request_id = check_request_id(request.request_id)
        wish = check_wish(project, request, self._default_profile)
        bind(project=project, session=wish.session_id)
        key = key_of("CreateSession", project, "", request_id, request, ignoring="wait_ready")
        session = await self._creation.create(wish, key)
        workspace = await self._workspace(session, waiting_time(remaining) if request.wait_ready else 0.0)
        view = await self._views.get(project, session.session_id)
        return session_pb2.CreateSessionResponse(session=convert.session(view, workspace))

    async def get(
        self, project: str, request: session_pb2.GetSessionRequest
    ) -> session_pb2.GetSessionResponse:
        """GetSession."""
        session_id = check_id("session_id", request.session_id)
        bind(project=project, session=session_id)
        view = await self._views.get(project, session_id)
        workspace, lease = await asyncio.gather(self._workspace(view.session), self._lease(view.session))
        return session_pb2.GetSessionResponse(session=convert.session(view, workspace, lease))

    async def list_newest(
        self, project: str, request: session_pb2.ListSessionsRequest
    ) -> session_pb2.ListSessionsResponse:
        """ListSessions."""
        labels = check_labels("labels", request.labels)
        limit = page_size("page_size", request.page_size)
        listing = _listing(labels)
        after = newest.after(request.page_token, listing)
        page = await self._views.list_newest(project, labels, after, limit)
        last = page.items[-1].session if page.more else None
        return session_pb2.ListSessionsResponse(
            sessions=[convert.session(view) for view in page.items],
            next_page_token=newest.token(listing, last.create_time, last.session_id) if last else "",
        )

    async def update(
        self, project: str, request: session_pb2.UpdateSessionRequest
    ) -> session_pb2.UpdateSessionResponse:
        """UpdateSession."""
        session_id = check_id("session_id", request.session_id)
        bind(project=project, session=session_id)
        request_id = check_request_id(request.request_id)
        key = key_of("UpdateSession", project, session_id, request_id, request)
        await self._sessions.update(_change(project, request), key)
        view = await self._views.get(project, session_id)
        return session_pb2.UpdateSessionResponse(session=convert.session(view))

    async def _workspace(self, session: Session, wait: float = 0.0) -> workspace_pb2.Workspace | None:
        """The session's workspace, after at most `wait` seconds READY or FAILED; None when not told."""
        name = (session.project, session.workspace_id)
        try:
            if wait > 0:
                return await self._workspaces.get(*name, wait=True, timeout=wait)
        except MoorageError as error:
            _log.info("the workspace is not ready in time", session=session.session_id, error=str(error))
        try:
            return await self._workspaces.get(*name, timeout=_PATIENCE)
        except MoorageError as error:
            _log.warning("the workspace's state is not told", session=session.session_id, error=str(error))
            return None

    async def _lease(self, session: Session) -> lease_pb2.Lease | None:
        """The session's live lease; None without one, and when owner does not tell."""
        try:
            lease = await self._leases.get(session.resource, timeout=_PATIENCE)
        except MoorageError as error:
            _log.warning("the session's lease is not told", session=session.session_id, error=str(error))
            return None
        return lease if lease is not None and lease.live else None


def _change(project: str, request: session_pb2.UpdateSessionRequest) -> SessionChange:
    mask = frozenset(request.update_mask.paths)
    if not mask:
        raise InvalidArgument.of("update_mask", "must name at least one field")
    if unknown := sorted(mask - _CHANGEABLE):
        raise InvalidArgument.of("update_mask", f"{unknown[0][:80]!r} cannot be changed")
    return SessionChange(
        project=project,
        session_id=request.session_id,
        labels=check_labels("labels", request.labels) if "labels" in mask else None,
        approval_policy=(
            check_approval_policy("approval_policy", request.approval_policy)
            if "approval_policy" in mask
            else None
        ),
        limits=check_limits("limits", request.limits) if "limits" in mask else None,
        etag=check_text("etag", request.etag),
    )


def _listing(labels: Mapping[str, str]) -> str:
    """What the pages of one listing have in common."""
    digest = hashlib.sha256(json.dumps(sorted(labels.items())).encode()).hexdigest()
    return f"ListSessions {digest}"
