"""SessionService: the RPCs about commands."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from moorage.session.v1 import session_pb2

from services.common.clock import Clock
from services.common.logs import bind
from services.common.pages import page_size
from services.common.telemetry import current_traceparent
from services.common.validation import check_id, check_request_id, mint_id
from services.session import convert, newest
from services.session.commands import Command, StopClaim, StopDraft
from services.session.journal.rules import SessionKey
from services.session.requests import key_of
from services.session.store.commands import CommandStore
from services.session.store.stopping import StopStore
from services.session.store.views import ViewStore
from services.session.watch.waiting import waiting_time
from services.session.watch.watching import Watching


class CommandMethods:
    """Unpacks requests, lets the stores and the watch work, packs responses."""

    def __init__(
        self,
        stops: StopStore,
        commands: CommandStore,
        views: ViewStore,
        watching: Watching,
        clock: Clock,
        *,
        deliver: Callable[[StopClaim], None],
    ) -> None:
        """`deliver` is given the Stops that are stored."""
        self._stops = stops
        self._commands = commands
        self._views = views
        self._watching = watching
        self._clock = clock
        self._deliver = deliver

    async def stop(self, project: str, request: session_pb2.StopTurnRequest) -> session_pb2.StopTurnResponse:
        """StopTurn. Once the command is stored, nothing but reading it can fail the call."""
        entered = self._clock.boottime()
        session_id = check_id("session_id", request.session_id)
        turn_id = request.expected_turn_id and check_id("expected_turn_id", request.expected_turn_id)
        bind(project=project, session=session_id, **({"turn": turn_id} if turn_id else {}))
        request_id = check_request_id(request.request_id)
        key = SessionKey(project, session_id)
        command_id = await self._stops.stop(
            StopDraft(key, mint_id("command"), turn_id, current_traceparent(), entered),
            key_of("StopTurn", project, session_id, request_id, request),
            self._deliver,
        )
        command, turn = await self._views.get_command(key, command_id)
        return session_pb2.StopTurnResponse(
            command=convert.command(command), turn=convert.turn(turn) if turn else None
        )

    async def get(
        self, project: str, request: session_pb2.GetCommandRequest, remaining: float | None
    ) -> session_pb2.GetCommandResponse:
        """GetCommand; `remaining` is how many seconds the caller waits, None without a bound."""
        session_id = check_id("session_id", request.session_id)
        command_id = check_id("command_id", request.command_id)
        bind(project=project, session=session_id, command=command_id)
        key = SessionKey(project, session_id)
        read = partial(self._commands.get, key, command_id)
        seconds = waiting_time(remaining) if request.wait else 0.0
        command = await self._watching.wait_for(key, read, _is_settled, seconds)
        return session_pb2.GetCommandResponse(command=convert.command(command))

    async def list_newest(
        self, project: str, request: session_pb2.ListCommandsRequest
    ) -> session_pb2.ListCommandsResponse:
        """ListCommands."""
        session_id = check_id("session_id", request.session_id)
        turn_id = request.turn_id and check_id("turn_id", request.turn_id)
        bind(project=project, session=session_id)
        limit = page_size("page_size", request.page_size)
        listing = f"ListCommands {session_id} {turn_id}"
        after = newest.after(request.page_token, listing)
        page = await self._commands.list_newest(SessionKey(project, session_id), turn_id, after, limit)
        last = page.items[-1] if page.more else None
        return session_pb2.ListCommandsResponse(
            commands=map(convert.command, page.items),
            next_page_token=newest.token(listing, last.create_time, last.command_id) if last else "",
        )


def _is_settled(command: Command) -> bool:
    return command.settled
