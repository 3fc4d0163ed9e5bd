"""SessionService: the RPCs about turns."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import Final

from moorage.session.v1 import session_pb2

from services.common.errors import InvalidArgument
from services.common.logs import bind
from services.common.pages import PageToken, page_size
from services.common.telemetry import current_traceparent
from services.common.validation import check_id, check_or_mint_id, check_request_id
from services.session import convert, convert_records
from services.session.checks import check_if_busy, check_prompt
from services.session.records import Heartbeat, Record
from services.session.requests import RequestKey, key_of
from services.session.store.starting import StartStore
from services.session.store.turns import TurnStore
from services.session.turns import IfBusy, NewTurn, Turn
from services.session.watch.watching import Watching

_LISTING: Final = "ListTurns"
_BEYOND_ALL: Final = 2**63 - 1


class TurnMethods:
    """Unpacks requests, lets the store and the watch work, packs responses."""

    def __init__(
        self,
        starts: StartStore,
        turns: TurnStore,
        watching: Watching,
        *,
        stopping: Callable[[], None],
    ) -> None:
        """`stopping` is called when there may be a Stop to deliver."""
        self._starts = starts
        self._turns = turns
        self._watching = watching
        self._stopping = stopping

    async def start(
        self, project: str, request: session_pb2.StartTurnRequest
    ) -> session_pb2.StartTurnResponse:
        """StartTurn."""
        draft = _draft(project, request)
        request_id = check_request_id(request.request_id)
        key = key_of("StartTurn", project, draft.session_id, request_id, request)
        return session_pb2.StartTurnResponse(turn=convert.turn(await self._start(draft, key)))

    async def run(
        self, project: str, request: session_pb2.RunTurnRequest
    ) -> AsyncGenerator[session_pb2.RunTurnResponse, None]:
        """RunTurn. Whoever attaches again may ask for other records, so `after_seq` may differ."""
        draft = _draft(project, request)
        if request.after_seq < 0:
            raise InvalidArgument.of("after_seq", "must not be negative")
        request_id = check_request_id(request.request_id)
        key = key_of("RunTurn", project, draft.session_id, request_id, request, ignoring="after_seq")
        await self._watching.check_cursor(project, draft.session_id, request.after_seq)
        turn = await self._start(draft, key)
        yield session_pb2.RunTurnResponse(admitted=convert.turn(turn))
        events = self._watching.watch_turn(project, turn.session_id, turn.turn_id, request.after_seq)
        async with aclosing(events):
            async for event in events:
                yield _response(event)

    async def get(self, project: str, request: session_pb2.GetTurnRequest) -> session_pb2.GetTurnResponse:
        """GetTurn."""
        session_id = check_id("session_id", request.session_id)
        turn_id = check_id("turn_id", request.turn_id)
        bind(project=project, session=session_id, turn=turn_id)
        turn = await self._turns.get(project, session_id, turn_id)
        return session_pb2.GetTurnResponse(turn=convert.turn(turn))

    async def list_newest(
        self, project: str, request: session_pb2.ListTurnsRequest
    ) -> session_pb2.ListTurnsResponse:
        """ListTurns."""
        session_id = check_id("session_id", request.session_id)
        bind(project=project, session=session_id)
        limit = page_size("page_size", request.page_size)
        listing = f"{_LISTING} {session_id}"
        token = PageToken.decode(request.page_token, listing, (int,))
        before = int(token.key[0]) if token else _BEYOND_ALL
        page = await self._turns.list_newest(project, session_id, before, limit)
        return session_pb2.ListTurnsResponse(
            turns=[convert.turn(turn) for turn in page.items],
            next_page_token=PageToken(listing, (page.items[-1].number,)).encode() if page.more else "",
        )

    async def _start(self, draft: NewTurn, key: RequestKey) -> Turn:
        bind(project=draft.project, session=draft.session_id, turn=draft.turn_id)
        turn_id = await self._starts.start(draft, key)
        if draft.if_busy is IfBusy.INTERRUPT:
            self._stopping()
        return await self._turns.get(draft.project, draft.session_id, turn_id)


def _draft(project: str, request: session_pb2.StartTurnRequest | session_pb2.RunTurnRequest) -> NewTurn:
    return NewTurn(
        project=project,
        session_id=check_id("session_id", request.session_id),
        turn_id=check_or_mint_id("turn_id", request.turn_id, "turn"),
        prompt=check_prompt("prompt", request.prompt),
        traceparent=current_traceparent(),
        if_busy=check_if_busy("if_busy", request.if_busy),
    )


def _response(event: Record | Heartbeat | Turn) -> session_pb2.RunTurnResponse:
    match event:
        case Record():
            return session_pb2.RunTurnResponse(record=convert_records.record(event))
        case Heartbeat():
            return session_pb2.RunTurnResponse(heartbeat=convert_records.heartbeat(event))
        case Turn():
            return session_pb2.RunTurnResponse(ended=convert.turn(event))
