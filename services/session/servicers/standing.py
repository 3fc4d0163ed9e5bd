"""SessionService: the RPCs about standing answers."""

from __future__ import annotations

from typing import Final

from moorage.session.v1 import session_pb2

from services.common.logs import bind, get_logger
from services.common.pages import PageToken, page_size
from services.common.validation import check_id, check_request_id
from services.session.convert_interactions import standing_answer
from services.session.journal.rules import SessionKey
from services.session.requests import key_of
from services.session.store.standing import StandingStore

_log: Final = get_logger(__name__)


class StandingMethods:
    """Unpacks requests, lets the store work, packs responses."""

    def __init__(self, standing: StandingStore) -> None:
        """The standing answers of all sessions."""
        self._standing = standing

    async def list_oldest(
        self, project: str, request: session_pb2.ListStandingAnswersRequest
    ) -> session_pb2.ListStandingAnswersResponse:
        """ListStandingAnswers."""
        session_id = check_id("session_id", request.session_id)
        bind(project=project, session=session_id)
        limit = page_size("page_size", request.page_size)
        listing = f"ListStandingAnswers {session_id}"
        token = PageToken.decode(request.page_token, listing, (int,))
        after_seq = int(token.key[0]) if token else 0
        page = await self._standing.list_oldest(SessionKey(project, session_id), after_seq, limit)
        return session_pb2.ListStandingAnswersResponse(
            standing_answers=map(standing_answer, page.items),
            next_page_token=PageToken(listing, (page.items[-1].seq,)).encode() if page.more else "",
        )

    async def revoke(
        self, project: str, request: session_pb2.RevokeStandingAnswerRequest
    ) -> session_pb2.RevokeStandingAnswerResponse:
        """RevokeStandingAnswer."""
        session_id = check_id("session_id", request.session_id)
        standing_answer_id = check_id("standing_answer_id", request.standing_answer_id)
        bind(project=project, session=session_id)
        request_id = check_request_id(request.request_id)
        key = key_of("RevokeStandingAnswer", project, session_id, request_id, request)
        revoked = await self._standing.revoke(SessionKey(project, session_id), standing_answer_id, key)
        _log.info("standing answer revoked", standing_answer=standing_answer_id)
        return session_pb2.RevokeStandingAnswerResponse(standing_answer=standing_answer(revoked))
