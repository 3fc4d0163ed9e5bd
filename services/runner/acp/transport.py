"""Messages in both directions over a byte stream: in order, bounded, and with known flushes."""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass
from typing import Final

from services.common.logs import get_logger
from services.runner.acp.errors import AgentError, AgentExited, AgentProtocolError, AgentTimeout
from services.runner.acp.lines import LineSplitter, Message, NoiseLog, decode, encode
from services.runner.acp.stream import ByteStream

_log: Final = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class TransportLimits:
    """Sizes in bytes, times in seconds."""

    max_line: int = 16 * 1024 * 1024
    queue_messages: int = 256
    queue_bytes: int = 32 * 1024 * 1024
    write_timeout: float = 30.0
    # After a failed write, for the rest of the agent's output to arrive.
    end_timeout: float = 5.0
    unanswered_requests: int = 256


class InboundQueue:
    """Bounded by count and by bytes; one puts, one gets. A single message may exceed the bytes."""

    def __init__(self, max_messages: int, max_bytes: int) -> None:
        """Empty."""
        self._max_messages = max_messages
        self._max_bytes = max_bytes
        self._items: deque[tuple[Message | AgentError, int]] = deque()
        self._bytes = 0
        self._moved = asyncio.Event()

    async def put(self, message: Message, size: int) -> None:
        """Wait for room."""
        while self._items and not self._has_room(size):
            await self._until_moved()
        self._append(message, size)

    def end(self, error: AgentError) -> None:
        """Put the end behind all that waits; it needs no room."""
        self._append(error, 0)

    async def get(self) -> Message | AgentError:
        """The oldest; the end stays."""
        while not self._items:
            await self._until_moved()
        if isinstance(error := self._items[0][0], AgentError):
            return error
        message, size = self._items.popleft()
        self._bytes -= size
        self._moved.set()
        return message

    def _append(self, item: Message | AgentError, size: int) -> None:
        self._items.append((item, size))
        self._bytes += size
        self._moved.set()

    def _has_room(self, size: int) -> bool:
        return len(self._items) < self._max_messages and self._bytes + size <= self._max_bytes

    async def _until_moved(self) -> None:
        self._moved.clear()
        await self._moved.wait()


class Transport:
    """Reads while there is room in the queue; writes one message at a time."""

    def __init__(self, stream: ByteStream, limits: TransportLimits) -> None:
        """Reads nothing until `pump` runs."""
        self.noise = NoiseLog()
        self._stream = stream
        self._limits = limits
        self._queue = InboundQueue(limits.queue_messages, limits.queue_bytes)
        self._splitter = LineSplitter(limits.max_line)
        self._write_lock = asyncio.Lock()
        self._broken: AgentError | None = None
        self._write_failed = asyncio.Event()
        self._accepted = 0
        self._handled = 0
        self._finished = False
        self._progress = asyncio.Event()

    @property
    def backlog(self) -> int:
        """Messages received and not yet handled."""
        return self._accepted - self._handled

    async def receive(self) -> Message:
        """The next message, in order; raises the reason of the end after the last one."""
        item = await self._queue.get()
        if isinstance(item, AgentError):
            raise item
        return item

    def mark_handled(self) -> None:
        """The received message needs no more care."""
        self._handled += 1
        self._progress.set()

    def finish(self) -> None:
        """Nothing more will be handled."""
        self._finished = True
        self._progress.set()

    async def until_handled(self) -> None:
        """Wait until all that was received up to now has been handled."""
        goal = self._accepted
        while self._handled < goal and not self._finished:
            self._progress.clear()
            await self._progress.wait()

    async def send(self, message: Message) -> None:
        """Return once the message is flushed. After a failure every further send fails at once.

        Must not be cancelled halfway: a torn line would spoil the next one.
        """
        data = encode(message)
        async with self._write_lock:
            if self._broken:
                raise AgentExited(f"an earlier write failed: {self._broken}")
            await self._write(data)

    async def pump(self) -> None:
        """Bytes to messages, until the stream ends."""
        reading = asyncio.create_task(self._read_all())
        failing = asyncio.create_task(self._end_after_failed_write())
        try:
            await asyncio.wait({reading, failing}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            reading.cancel()
            failing.cancel()
            await asyncio.gather(reading, failing, return_exceptions=True)

    async def _write(self, data: bytes) -> None:
        try:
            async with asyncio.timeout(self._limits.write_timeout):
                await self._stream.write(data)
        except TimeoutError as error:
            raise self._break(AgentTimeout("the agent did not read its input in time")) from error
        except Exception as error:
            raise self._break(AgentExited(f"the agent's input cannot be written: {error}")) from error

    def _break(self, error: AgentError) -> AgentError:
        self._broken = error
        self._write_failed.set()
        return error

    async def _read_all(self) -> None:
        self._queue.end(await self._read_to_end())

    async def _read_to_end(self) -> AgentError:
        try:
            while data := await self._stream.read():
                for line in self._splitter.feed(data):
                    await self._accept(line)
        except AgentProtocolError as error:
            return error
        except Exception as error:  # noqa: BLE001 - any loss of the stream is its end
            _log.warning("the agent's output was lost", exc_info=error)
            return AgentExited(f"the agent's output was lost: {error}")
        await self._accept(self._splitter.rest())
        return AgentExited("the agent's output ended")

    async def _accept(self, line: bytes) -> None:
        if not line.strip():
            return
        message = decode(line)
        if message is None:
            self.noise.add(line)
        else:
            await self._queue.put(message, len(line))
            self._accepted += 1

    async def _end_after_failed_write(self) -> None:
        """An agent that does not read gets some time to end by itself: what it still says counts."""
        await self._write_failed.wait()
        await asyncio.sleep(self._limits.end_timeout)
        self._queue.end(self._broken or AgentExited("the agent's input cannot be written"))
