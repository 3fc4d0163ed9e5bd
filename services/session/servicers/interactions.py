"""SessionService: the RPCs about interactions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from moorage.session.v1 import session_pb2

from services.common.logs import bind, get_logger
from services.common.pages import PageToken, page_size
from services.common.validation import check_id, check_present, check_request_id
from services.session import convert_interactions
from services.session.interactions import Answer
from services.session.journal.rules import SessionKey
from services.session.requests import key_of
from services.session.store.interactions import InteractionStore

_log: Final = get_logger(__name__)


class InteractionMethods:
    """Unpacks requests, lets the store work, packs responses."""

    def __init__(self, interactions: InteractionStore, *, answered: Callable[[], None]) -> None:
        """`answered` is called when there may be an answer to deliver."""
        self._interactions = interactions
        self._answered = answered

    async def list_oldest(
        self, project: str, request: session_pb2.ListInteractionsRequest
    ) -> session_pb2.ListInteractionsResponse:
        """ListInteractions."""
        session_id = check_id("session_id", request.session_id)
        bind(project=project, session=session_id)
        limit = page_size("page_size", request.page_size)
        listing = f"ListInteractions {session_id} {request.pending_only}"
        token = PageToken.decode(request.page_token, listing, (int,))
        after_seq = int(token.key[0]) if token else 0
        page = await self._interactions.list_oldest(
            SessionKey(project, session_id), after_seq, limit, pending_only=request.pending_only
        )
        return session_pb2.ListInteractionsResponse(
            interactions=map(convert_interactions.interaction, page.items),
            next_page_token=PageToken(listing, (page.items[-1].seq,)).encode() if page.more else "",
        )

    async def answer(
        self, project: str, request: session_pb2.AnswerInteractionRequest
    ) -> session_pb2.AnswerInteractionResponse:
        """AnswerInteraction. Once the answer is stored, nothing but reading it can fail the call."""
        answer = Answer(
            project,
            check_id("session_id", request.session_id),
            check_id("interaction_id", request.interaction_id),
            check_present("option_id", request.option_id),
            request.values,
        )
        bind(project=project, session=answer.session_id, interaction=answer.interaction_id)
        request_id = check_request_id(request.request_id)
        key = key_of("AnswerInteraction", project, answer.session_id, request_id, request)
        stored = await self._interactions.answer(answer, key)
        self._answered()
        _log.info("interaction answered", option=stored.option_id)
        return session_pb2.AnswerInteractionResponse(interaction=convert_interactions.interaction(stored))
