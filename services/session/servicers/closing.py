"""SessionService: closing and deleting."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from moorage.session.v1 import session_pb2

from services.common.logs import bind
from services.common.telemetry import current_traceparent
from services.common.validation import check_id, check_request_id
from services.session import convert
from services.session.journal.rules import SessionKey
from services.session.requests import key_of
from services.session.sessions import SessionNotFound, SessionState, SessionView
from services.session.store.closing import CloseStore
from services.session.store.deleting import DeleteStore
from services.session.store.views import ViewStore
from services.session.watch.waiting import waiting_time
from services.session.watch.watching import Watching


@dataclass(frozen=True, slots=True)
class _Deletion:
    """What can be seen of a session, None once it is gone, and whether its rows are gone too."""

    view: SessionView | None
    erased: bool


class CloseMethods:
    """Unpacks requests, lets the store and the watch work, packs responses."""

    def __init__(
        self,
        store: CloseStore,
        deletions: DeleteStore,
        views: ViewStore,
        watching: Watching,
        *,
        closing: Callable[[], None],
    ) -> None:
        """`closing` is called when there may be a session to close or to delete."""
        self._store = store
        self._deletions = deletions
        self._views = views
        self._watching = watching
        self._closing = closing

    async def close(
        self, project: str, request: session_pb2.CloseSessionRequest, remaining: float | None
    ) -> session_pb2.CloseSessionResponse:
        """CloseSession; `remaining` is how many seconds the caller waits, None without a bound."""
        session_id = check_id("session_id", request.session_id)
        bind(project=project, session=session_id)
        request_id = check_request_id(request.request_id)
        key = key_of("CloseSession", project, session_id, request_id, request, ignoring="wait")
        session = SessionKey(project, session_id)
        await self._store.close(session, current_traceparent(), key)
        self._closing()
        read = partial(self._views.get, *session)
        seconds = waiting_time(remaining) if request.wait else 0.0
        view = await self._watching.wait_for(session, read, _is_closed, seconds)
        return session_pb2.CloseSessionResponse(session=convert.session(view))

    async def delete(
        self, project: str, request: session_pb2.DeleteSessionRequest, remaining: float | None
    ) -> session_pb2.DeleteSessionResponse:
        """DeleteSession; `remaining` is how many seconds the caller waits, None without a bound."""
        session_id = check_id("session_id", request.session_id)
        bind(project=project, session=session_id)
        request_id = check_request_id(request.request_id)
        key = key_of("DeleteSession", project, session_id, request_id, request, ignoring="wait")
        session = SessionKey(project, session_id)
        await self._deletions.delete(session, current_traceparent(), key)
        self._closing()
        read = partial(self._read_deletion, session)
        seconds = waiting_time(remaining) if request.wait else 0.0
        found = await self._watching.wait_for(session, read, _is_erased, seconds)
        return session_pb2.DeleteSessionResponse(session=convert.session(found.view) if found.view else None)

    async def _read_deletion(self, session: SessionKey) -> _Deletion:
        try:
            return _Deletion(await self._views.get(*session), erased=False)
        except SessionNotFound:
            return _Deletion(None, await self._deletions.is_erased(session))


def _is_erased(found: _Deletion) -> bool:
    return found.erased


def _is_closed(view: SessionView) -> bool:
    return view.session.state is SessionState.CLOSED
