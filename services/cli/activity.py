"""A line at the bottom of the terminal that says what a turn waits for, while it says nothing itself."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

import grpc
from moorage.common.v1 import turn_pb2
from moorage.session.v1 import session_pb2
from rich.status import Status
from rich.text import Text

from services.cli.connection import Connection
from services.cli.output import Output, harmless
from services.cli.stopping import held, released

# An agent that speaks every now and then needs no line that flickers.
_QUIET = 0.8
_LOOK = 1.0


@dataclass(frozen=True, slots=True)
class Seen:
    """A turn as it stands; `held` says that nothing runs which could let it out of the queue."""

    turn: session_pb2.Turn
    held: bool = False


Look = Callable[[], Awaitable[Seen]]


async def look(connection: Connection, session_id: str, turn_id: str) -> Seen:
    """How it stands now."""
    request = session_pb2.GetTurnRequest(session_id=session_id, turn_id=turn_id)
    turn = (await connection.sessions.GetTurn(request, metadata=connection.metadata)).turn
    queued = turn.state == turn_pb2.TURN_STATE_QUEUED
    return Seen(turn, held=queued and turn_id in await held(connection, session_id))


class Activity:
    """Shown where people watch, and only between whole lines."""

    def __init__(self, output: Output, look: Look) -> None:
        """`look` gives the turn as it stands."""
        self._output = output
        self._look = look
        self._began = time.monotonic()
        self._heard = time.monotonic()
        self._held = False
        self._status: Status | None = None

    @property
    def possible(self) -> bool:
        """Whether there is a terminal to show it on."""
        return self._output.console.is_terminal and not self._output.as_json

    @asynccontextmanager
    async def shown(self) -> AsyncIterator[None]:
        """Within the block it comes and goes; at its end it is gone."""
        watching = asyncio.create_task(self._watch()) if self.possible else None
        try:
            yield
        finally:
            if watching is not None:
                watching.cancel()
                await asyncio.gather(watching, return_exceptions=True)
            self.hide()

    def hide(self, *, held: bool = False) -> None:
        """Make room for something that is printed; with `held` until the next time."""
        self._heard, self._held = time.monotonic(), held
        if self._status is not None:
            status, self._status = self._status, None
            status.stop()

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(_LOOK / 4 if self._status else _QUIET / 4)
            if self._held or time.monotonic() - self._heard < _QUIET:
                continue
            with contextlib.suppress(grpc.aio.AioRpcError):
                heard = self._heard
                seen = await self._look()
                # What came in between has been printed, and the next line is not there yet.
                if heard == self._heard:
                    self._show(seen)
            await asyncio.sleep(_LOOK)

    def _show(self, seen: Seen) -> None:
        text = Text(harmless(words_of(seen, time.monotonic() - self._began)), style="dim")
        if self._status is None:
            self._status = self._output.console.status(text, spinner="dots")
            self._status.start()
        else:
            self._status.update(text)


def words_of(seen: Seen, seconds: float) -> str:
    """What a turn waits for, and for how long this has been watched."""
    turn = seen.turn
    if turn.state == turn_pb2.TURN_STATE_QUEUED:
        waits = (
            f"held: {released(turn.session_id, turn.turn_id)}" if seen.held else "behind the turn in progress"
        )
        return f"queued, number {turn.queue_position}, {waits} · {seconds:.0f} s"
    waits = turn.waiting_reason or "for the agent"
    if turn.HasField("stop_deadline"):
        waits = "for its end"
    return f"waiting {waits} · {seconds:.0f} s"
