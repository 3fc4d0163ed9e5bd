"""Fewer and larger records from an agent's many small pieces of text (R4)."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

from moorage.common.v1.content_pb2 import ContentBlock, TextContent
from moorage.common.v1.record_pb2 import AgentMessage, RecordBody, Thought

from services.common.clock import Clock
from services.common.validation import mint_id

# Of one record, so that it stays well below 256 KiB with all that is around its text.
MAX_TEXT_BYTES: Final = 192 * 1024
MAX_MESSAGE_ID: Final = 128

Sink = Callable[[RecordBody], Awaitable[object]]


@dataclass(frozen=True, slots=True)
class _Open:
    """The message that the next piece may go on with."""

    kind: str
    # As the agent named it; empty when it did not.
    given: str
    # As its records name it.
    message_id: str


class Coalescer:
    """Merges what goes on with the same message; all else passes in order.

    The first piece of a message, and the first after anything else, goes out at once.
    `run` may be cancelled at any time: what it could not let out waits for `flush`.
    """

    def __init__(
        self, sink: Sink, clock: Clock, *, flush_after: float = 0.1, flush_bytes: int = 4096
    ) -> None:
        """`sink` takes one record after the other; `flush_after` in seconds."""
        self._sink = sink
        self._clock = clock
        self._flush_after = flush_after
        self._flush_bytes = flush_bytes
        self._lock = asyncio.Lock()
        self._open: _Open | None = None
        self._pieces: deque[str] = deque()
        self._bytes = 0
        self._deadline: float | None = None
        self._armed = asyncio.Event()

    async def put(self, body: RecordBody) -> None:
        """Take the next record of the turn."""
        async with self._lock:
            kind = body.WhichOneof("body")
            if kind == "agent_message":
                await self._put_piece(kind, body.agent_message)
            elif kind == "thought":
                await self._put_piece(kind, body.thought)
            else:
                await self._end_message()
                await self._sink(body)

    async def flush(self) -> None:
        """Let everything out; the message, if the agent gave it no name, ends here."""
        async with self._lock:
            await self._end_message()

    async def run(self) -> None:
        """Let text out that has waited for long enough, until cancelled."""
        while True:
            if self._deadline is None:
                self._armed.clear()
                await self._armed.wait()
            elif (left := self._deadline - self._clock.boottime()) > 0:
                await self._clock.sleep(left)
            else:
                await self._flush_due()

    async def _flush_due(self) -> None:
        async with self._lock:
            if self._deadline is not None and self._deadline <= self._clock.boottime():
                await self._let_out()

    async def _put_piece(self, kind: str, piece: AgentMessage | Thought) -> None:
        message = self._open
        starts = message is None or (message.kind, message.given) != (kind, piece.message_id)
        if message is None or starts:
            await self._end_message()
            message = _Open(kind, piece.message_id, piece.message_id[:MAX_MESSAGE_ID] or mint_id("message"))
        if piece.content.WhichOneof("block") == "text":
            self._open = message
            await self._put_text(piece.content.text.text, at_once=starts)
        else:
            await self._let_out()
            await self._sink(_record(message, piece.content))
            self._open = message

    async def _put_text(self, text: str, *, at_once: bool) -> None:
        self._pieces.append(text)
        self._bytes += len(text.encode())
        if at_once or self._bytes >= self._flush_bytes:
            await self._let_out()
        elif self._deadline is None:
            self._deadline = self._clock.boottime() + self._flush_after
            self._armed.set()

    async def _end_message(self) -> None:
        await self._let_out()
        self._open = None

    async def _let_out(self) -> None:
        self._deadline = None
        self._pieces = deque(cut("".join(self._pieces), MAX_TEXT_BYTES))
        self._bytes = 0
        while self._pieces and self._open:
            await self._sink(_record(self._open, ContentBlock(text=TextContent(text=self._pieces[0]))))
            self._pieces.popleft()


def cut(text: str, max_bytes: int) -> list[str]:
    """Pieces of at most so many bytes of UTF-8, cut between characters."""
    data = text.encode()
    pieces, start = [], 0
    while start < len(data):
        end = min(start + max_bytes, len(data))
        while end < len(data) and data[end] & 0xC0 == 0x80:
            end -= 1
        pieces.append(data[start:end].decode())
        start = end
    return pieces


def _record(message: _Open, content: ContentBlock) -> RecordBody:
    if message.kind == "thought":
        return RecordBody(thought=Thought(message_id=message.message_id, content=content))
    return RecordBody(agent_message=AgentMessage(message_id=message.message_id, content=content))
